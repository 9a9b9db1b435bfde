"""Targets that a classification loss does not take."""

import re

from surefoot.debug.errors.words import of, shape
from surefoot.records.explanation import Cause, Raised

_BOUNDS = re.compile(r"Target (-?\d+) is out of bounds")
_SIZE = re.compile(r"Expected target size (\[.*?\]), got (\[.*?\])")


def cause(raised: Raised) -> Cause | None:
    given, target = raised.role("input"), raised.role("target")
    if given is None or target is None or not given.shape:
        return None
    if found := _BOUNDS.search(raised.message):
        classes = given.shape[1] if len(given.shape) > 1 else given.shape[0]
        held = f" It holds {target.low} to {target.high}." if target.low is not None else ""
        said = f"The target {of(target)} has class {found[1]}.{held} "
        said += f"The input {of(given)} has {classes} classes, 0 to {classes - 1}."
        remedy = "Number the classes from 0, or give the model more classes."
        if int(found[1]) < 0:
            remedy = "If it marks what should not count, pass it as `ignore_index`."
        return Cause(said, remedy, target.made[-1:])
    if "multi-target not supported" in raised.message:
        got, needs = len(target.shape or ()), len(given.shape) - 1
        said = f"The target {of(target)} has {got} dimensions; class numbers need {needs}."
        return Cause(
            said, f"Use `{target.name}.squeeze(1)`, or class numbers for one-hot rows: `.argmax(1)`.", target.made[-1:]
        )
    if found := _SIZE.search(raised.message):
        said = f"The input {of(given)} has its classes in dimension 1, so the target must be {found[1]}; "
        said += f"the target {of(target)} is {shape(target.shape)}."
        remedy = "Move the classes to dimension 1 (`logits.transpose(1, 2)`), or flatten both: `logits.flatten(0, 1)`, "
        return Cause(said, f"{remedy}`{target.name}.flatten()`.", target.made[-1:])
    return None
