"""A tuple or list is used as a tensor, mostly what a layer returned beside its output."""

import re

from surefoot.debug.errors.words import shape
from surefoot.records.explanation import Cause, Raised

_USED = re.compile(
    r"(?P<kind>tuple|list) indices must be integers or slices, not tuple|'(?P<has>tuple|list)' object has no attribute"
    r"|must be Tensor, not (?P<given>tuple|list)"
)


def cause(raised: Raised) -> Cause | None:
    found = _USED.search(raised.message)
    if found is None or raised.error not in ("TypeError", "AttributeError"):
        return None
    kind = found["kind"] or found["has"] or found["given"]
    held = next((each for each in raised.met if each.kind == kind and each.shapes), None)
    if held is None:
        return None
    shapes = " and ".join(map(shape, held.shapes))
    said = f"`{held.name}` is a {kind} of {len(held.shapes)} tensors, {shapes}, not a tensor."
    remedy = f"Take the one that you need, `{held.name}[0]`, or unpack what the call returns: `output, state = ...`."
    return Cause(said, remedy, held.made)
