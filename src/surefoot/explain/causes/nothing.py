"""A value is None where an object is needed."""

import re

from surefoot.records.explanation import Cause, Raised

_NONE = re.compile(r"'NoneType'|not NoneType|must be .*, not None|NoneType object")


def cause(raised: Raised) -> Cause | None:
    if raised.error not in ("TypeError", "AttributeError") or not _NONE.search(raised.message):
        return None
    empty = next((each for each in raised.met if each.kind in ("NoneType", "unknown")), None)
    if empty is None or not empty.name:
        return None
    said = f"`{empty.name}` is None."
    remedy = "Look at the line that made it. A function without `return` gives None."
    return Cause(said, remedy, empty.made)
