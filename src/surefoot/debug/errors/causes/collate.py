"""Samples of uneven sizes are joined into a batch."""

import re

from surefoot.records.explanation import Cause, Raised

_SIZES = re.compile(
    r"stack expects each tensor to be equal size, but got (\[.*?\]) at entry (\d+) and (\[.*?\]) at entry (\d+)"
)


def cause(raised: Raised) -> Cause | None:
    found = _SIZES.search(raised.message)
    if found is None:
        return None
    first, one, second, other = found.groups()
    if raised.function in ("stack", "vstack", "hstack"):
        said = f"`stack` joins tensors of one size: number {one} is {first} and number {other} is {second}."
        return Cause(said, "Give all of them one size, or pad them first.")
    said = f"Samples of one batch differ in size: sample {one} is {first} and sample {other} is {second}."
    made = next((each.made for each in raised.met if each.role == "sample"), ())
    return Cause(said, "Make all samples one size, or pad them in a `collate_fn`.", made[-1:])
