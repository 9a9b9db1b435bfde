"""A layer gets an input of another size than it was made for."""

import re

from surefoot.debug.errors.words import of, shape
from surefoot.records.explanation import Cause, Met, Raised

_TAKES = ("in_features", "in_channels", "num_features", "input_size", "embed_dim", "num_channels")
_COUNTS = (
    re.compile(r"shapes cannot be multiplied \(\d+x(?P<got>\d+) and (?P<takes>\d+)x\d+\)"),
    re.compile(r"to have (?P<takes>\d+) channels, but got (?P<got>\d+) channels"),
    re.compile(r"running_mean should contain (?P<got>\d+) elements not (?P<takes>\d+)"),
    re.compile(r"must be equal to input_size. Expected (?P<takes>\d+), got (?P<got>\d+)"),
    re.compile(r"inconsistent input_size: got (?P<got>\d+),? expected (?P<takes>\d+)"),
    re.compile(r"expecting embedding dimension of (?P<takes>\d+), but got (?P<got>\d+)"),
    re.compile(
        r"Expected number of channels in input to be divisible by num_groups, but got .* num_groups=(?P<takes>\d+)"
    ),
)
_NORM = re.compile(r"Given normalized_shape=\[(?P<takes>[\d, ]+)\].*got input of size\[(?P<got>[\d, ]+)\]")
_STATE = re.compile(r"Expected hidden(?:\[(\d)\])? size (?P<takes>\(.*?\)), got (?P<got>\[.*?\])")
_DIMENSIONS = re.compile(r"Expected (?:input to be )?.*?(\dD|\d-D).*?(?:input|got)|expected \d+D.* input")
_EXPECTED = re.compile(r"[Ee]xpected .*shape.* to be (?P<takes>\d+), but got (?P<got>\d+)")
_SMALL = re.compile(r"Kernel size can't be greater than actual input size|Output size is too small")


def cause(raised: Raised) -> Cause | None:
    if raised.module is None or raised.is_backward or raised.function != raised.module.kind:
        return None
    given = raised.role("input", "x", "query", "src", "tensor") or next(
        (each for each in raised.tensors if each.role), None
    )
    made = raised.module.made
    for pattern in _COUNTS:
        if found := pattern.search(raised.message):
            return _count(raised, given, found["takes"], found.groupdict().get("got", ""))
    if found := _NORM.search(raised.message):
        return _count(raised, given, found["takes"], found["got"].split(",")[-1].strip())
    if found := _STATE.search(raised.message):
        said = (
            f"The hidden state passed to {raised.where} is {found['got']}; for this input it must be {found['takes']}."
        )
        state = next((each for each in raised.met if each.role in ("hx", "hidden", "state")), None)
        name = f" `{state.name}` is the state." if state is not None else ""
        remedy = "Its dimensions are layers, batch and width. Make it for this batch, or pass none to begin with zeros."
        return Cause(said + name, remedy, state.made if state is not None else made)
    if found := _EXPECTED.search(raised.message):
        odd = next((each for each in raised.tensors if each.shape and int(found["got"]) in each.shape), None)
        if odd is not None:
            said = f"{raised.where} gets {of(odd)} and needs {found['takes']} where that has {found['got']}."
            return Cause(said, f"Make `{odd.name}` for the sizes of the input.", odd.made)
    if given is None:
        return None
    if _SMALL.search(raised.message):
        said = f"{of(given)} is too small for {raised.where}: nothing is left after its kernel."
        return Cause(
            said, "Use larger inputs, padding, or fewer layers that shrink them.", (*given.made[-1:], *made[:1])
        )
    if "Expected more than 1 value per channel when training" in raised.message:
        said = f"{raised.where} averages over the batch, and {of(given)} has one value per channel."
        return Cause(said, "Drop the last incomplete batch (`drop_last=True`), or use a larger batch.", given.made[-1:])
    if _DIMENSIONS.search(raised.message):
        said = f"{raised.where} gets {of(given)}: {len(given.shape or ())} dimensions, which it does not take."
        return Cause(
            said, "Add or remove a dimension: `unsqueeze`, `squeeze`, `flatten` or `unflatten`.", given.made[:1]
        )
    return None


def _count(raised: Raised, given: Met | None, takes: str, got: str) -> Cause:
    assert raised.module is not None
    word = "channels" if "channel" in raised.message or "running_mean" in raised.message else "features"
    what = f": its input {of(given)}" if given is not None else ""
    weight = raised.role("weight")
    beside = f", its weight {shape(weight.shape)}" if weight is not None else ""
    said = f"{raised.where} takes {takes} {word} and gets {got}{what}{beside}."
    names = f"what makes `{given.name}`" if given is not None else "its input"
    remedy = f"Make the layer for {got} {word}, or change {names}."
    return Cause(said, remedy, (*raised.module.made, *(given.made if given is not None else ())))
