"""An index lies beyond the size of what it picks from."""

import re

from surefoot.debug.errors.words import of
from surefoot.records.explanation import Cause, Met, Raised

_BOUNDS = re.compile(r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)")


def cause(raised: Raised) -> Cause | None:
    rows = raised.setting("num_embeddings")
    if "index out of range in self" in raised.message:
        table = raised.role("weight")
        rows = rows if rows is not None else table.shape[0] if table is not None and table.shape else None
        index = next((each for each in raised.tensors if each.low is not None and each.high is not None), None)
        if rows is None or index is None or index.low is None or index.high is None:
            return None
        said = f"{raised.where} has {rows} rows, 0 to {rows - 1}. {of(index)} holds {index.low} to {index.high}."
        remedy = f"Make the table with at least {index.high + 1} rows, or look at what makes these indices."
        if index.low < 0:
            remedy = "Indices must not be negative: replace what marks padding before the lookup."
        return Cause(said, remedy, raised.module.made if raised.module is not None else ())
    if found := _BOUNDS.search(raised.message):
        held = next((each for each in raised.tensors if each.shape and int(found[3]) in each.shape), None)
        what = f"{of(held)}" if held is not None else "the tensor"
        said = f"Index {found[1]} is beyond dimension {found[2]} of {what}, which has size {found[3]}."
        return Cause(said, "Look at what makes the index, and at what makes the tensor.")
    if "selected index k out of range" in raised.message:
        return _too_many(raised)
    if "Class values must be smaller than num_classes" in raised.message:
        index = next((each for each in raised.tensors if each.high is not None), None)
        if index is not None:
            said = f"{of(index)} holds {index.low} to {index.high}, and `one_hot` was given fewer classes."
            return Cause(said, "Give it one class more than the highest value.", index.made[-1:])
    return None


def _too_many(raised: Raised) -> Cause | None:
    """`topk` and `kthvalue` take a number, then a dimension."""
    held = next(iter(raised.tensors), None)
    numbers = [(each, _number(each)) for each in raised.met if each.kind == "int"]
    if held is None or not held.shape or not numbers:
        return None
    (asked, count), dim = numbers[0], numbers[1][1] if len(numbers) > 1 else -1
    if count is None or dim is None or not -len(held.shape) <= dim < len(held.shape):
        return None
    said = f"`{raised.function}` asks for {count} in dimension {dim} of {of(held)}, which has {held.shape[dim]}."
    remedy = f"Ask for {held.shape[dim]} at most, or look at what makes `{held.name}`."
    return Cause(said, remedy, (*asked.made, *held.made))


def _number(met: Met) -> int | None:
    found = re.match(r"-?\d+", met.value or met.name)
    return int(found[0]) if found else None
