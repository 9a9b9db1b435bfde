"""A view of a tensor whose memory does not lie in that order."""

from surefoot.debug.errors.words import of, shape
from surefoot.records.explanation import Cause, Raised


def cause(raised: Raised) -> Cause | None:
    if "view size is not compatible" not in raised.message:
        return None
    viewed = next((each for each in raised.tensors if each.strides is not None), None)
    what = (
        f"{of(viewed)} is not contiguous: its strides are {shape(viewed.strides)}" if viewed else "It is not contiguous"
    )
    said = f"`view` cannot change this shape without a copy. {what}, because of a slice, transpose or permute."
    return Cause(said, "Use `reshape(...)`, which copies where it must, or `.contiguous()` before `view`.")
