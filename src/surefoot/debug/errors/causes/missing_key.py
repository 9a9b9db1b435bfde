"""A mapping has no such key."""

from difflib import get_close_matches

from surefoot.records.explanation import Cause, Raised


def cause(raised: Raised) -> Cause | None:
    if raised.error != "KeyError" or not raised.keys:
        return None
    key = raised.message.strip("'\"")
    near = get_close_matches(key, raised.keys, 1)
    said = f"There is no {raised.message}. The keys are {', '.join(map(repr, raised.keys))}."
    remedy = (
        f"Did you mean {near[0]!r}?" if near else "Use one of these keys, or add the key where the mapping is made."
    )
    return Cause(said, remedy, (raised.place,) if raised.place else ())
