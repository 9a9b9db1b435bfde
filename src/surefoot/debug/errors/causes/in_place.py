"""A tensor is written in place where autograd does not allow it."""

from surefoot.records.explanation import Cause, Place, Raised


def cause(raised: Raised) -> Cause | None:
    if "leaf Variable that requires grad is being used in an in-place operation" in raised.message:
        leaf = next((each for each in raised.tensors if each.requires_grad), None)
        name = f"`{leaf.name}`" if leaf is not None and leaf.name else "A leaf"
        said = f"{name} is a leaf that requires grad, such as a parameter, and this line writes it in place."
        remedy = "Write inside `with torch.no_grad():` if autograd should not see it; else make a new tensor."
        return Cause(said, remedy, (raised.place,) if raised.place else ())
    write = raised.write
    if write is None:
        return None
    if write.is_update:
        said = (
            f"The optimizer's step{_at(write.written)} changed parameters in place between a forward and its backward."
        )
        said += f" `{write.saved_by}`{_at(write.saved)} had saved them for this backward."
        remedy = "Call every backward before the step, or run the forward again after the step."
        return Cause(said, remedy, _places(write.written, write.saved))
    said = f"`{write.by}`{_at(write.written)} changes in place a tensor that `{write.saved_by}`{_at(write.saved)} had "
    said += "saved for its backward."
    remedy = (
        "Make a new tensor there: `x = x + y` for `x += y`, `torch.where` for a masked assignment, no `inplace=True`."
    )
    return Cause(said, remedy, _places(write.written, write.saved))


def _at(place: Place | None) -> str:
    return f" on line {place.line}" if place is not None else ""


def _places(*places: Place | None) -> tuple[Place, ...]:
    return tuple(each for each in places if each is not None)
