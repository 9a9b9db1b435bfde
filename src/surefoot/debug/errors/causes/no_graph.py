"""A loss has no graph."""

from surefoot.records.explanation import Cause, Raised


def cause(raised: Raised) -> Cause | None:
    if "does not require grad and does not have a grad_fn" not in raised.message:
        return None
    cut = raised.cut
    if cut is None:
        return None
    at = f" on line {cut.place.line}" if cut.place is not None else ""
    places = tuple(each for each in (cut.called, cut.place) if each is not None)
    if cut.no_grad:
        said = f"The loss has no graph: `no_grad` or `inference_mode` is on where `{cut.by}` runs{at}."
        return Cause(said, "Compute the loss outside of `torch.no_grad()`.", places)
    said = f"The loss has no graph: `{cut.by}`{at} returns a tensor that is cut off from it."
    return Cause(said, "Leave that call out on the way to the loss.", places)
