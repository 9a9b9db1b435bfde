"""A value is None where an object is needed."""

import re

from surefoot.records.explanation import Cause, Raised

_RETURNS = re.compile(r"return$|return .*\bNone\b")
_NONE = re.compile(r"'NoneType'|not NoneType|must be .*, not None|NoneType object")


def cause(raised: Raised) -> Cause | None:
    if raised.error not in ("TypeError", "AttributeError") or not _NONE.search(raised.message):
        return None
    empty = next((each for each in raised.met if each.kind in ("NoneType", "unknown")), None)
    if empty is None or not empty.name:
        return None
    gives = next((each for each in empty.made if _RETURNS.match(each.code)), None)
    if gives is not None:
        under = next((each for each in empty.made if each.code.startswith("if ") and each.line < gives.line), None)
        condition = f", under `{under.code}`" if under is not None else ""
        said = f"`{empty.name}` is None: line {gives.line} returns it{condition}."
        return Cause(said, "Call it so that it returns a value, or do not use the value here.", empty.made)
    remedy = "Look at the line that made it. A function without `return` gives None."
    return Cause(f"`{empty.name}` is None.", remedy, empty.made)
