"""A tensor with a graph, or with many elements, is turned into something else."""

import re

from surefoot.debug.errors.words import of
from surefoot.records.explanation import Cause, Raised


def cause(raised: Raised) -> Cause | None:
    first = raised.tensors[0] if raised.tensors else None
    what = of(first) if first is not None else "the tensor"
    if "Can't call numpy() on Tensor that requires grad" in raised.message:
        return Cause(f"{what} is part of a graph, and numpy arrays have none.", "Use `.detach().numpy()`.")
    if re.search(r"a Tensor with \d+ elements cannot be converted to Scalar", raised.message):
        return Cause(
            f"{what} has more than one element, and a number is one.", "Take its mean, its sum or one element."
        )
    if "Boolean value of Tensor with more than one value is ambiguous" in raised.message:
        said = "A condition is made of a tensor with several elements: it is true for some and false for others."
        return Cause(said, "Use `.any()`, `.all()` or `torch.where`.")
    return None
