"""A backward is asked of a tensor that is not one number."""

from surefoot.debug.errors.words import of
from surefoot.records.explanation import Cause, Raised


def cause(raised: Raised) -> Cause | None:
    if "grad can be implicitly created only for scalar outputs" not in raised.message:
        return None
    loss = next((each for each in raised.tensors if each.shape), None)
    what = f"{of(loss)}" if loss is not None else "The loss"
    said = f"{what} is not a scalar, and `backward()` needs one number."
    remedy = 'Reduce it with `.mean()` or `.sum()`. A loss function does so unless it has `reduction="none"`.'
    return Cause(said, remedy, loss.made[:1] if loss is not None else ())
