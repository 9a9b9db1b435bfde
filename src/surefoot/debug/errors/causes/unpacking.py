"""A result is unpacked into another number of names."""

import re

from surefoot.records.explanation import Cause, Raised

_COUNT = re.compile(r"too many values to unpack|not enough values to unpack")


def cause(raised: Raised) -> Cause | None:
    if raised.error != "ValueError" or not _COUNT.search(raised.message) or raised.place is None:
        return None
    names, _, value = raised.place.code.partition(" = ")
    if not value:
        return None
    count = len(names.split(","))
    there = next((each for each in raised.met if each.name), None)
    gives = next((end for end in (there.made if there else ()) if end.code.startswith(("return", "yield"))), None)
    number = (
        f" It returns {gives.code.removeprefix('return ').removeprefix('yield ').count(',') + 1}: line {gives.line}."
        if gives
        else ""
    )
    said = f"`{value}` is unpacked into {count} names, and gives another number of values.{number}"
    return Cause(said, "Unpack as many names as it returns.", (raised.place, *((gives,) if gives else ())))
