"""Interval: between which seconds a predicted step falls in four of five cases, from the errors of like steps."""

from dataclasses import replace

from surefoot.costs.time_constants import Constants, constants
from surefoot.hardware import Datasheet
from surefoot.records.step_time import Interval, StepTime

KNOWN_DEVICE, OTHER_DEVICE = "known device", "other device"
"""Kinds of steps on GPUs: those of a generation that published runs were fitted to, and others, which are less certain.
Runs as written and compiled ones are of one kind: there are too few sources of each to tell them apart."""
COMPILED_MEMORY = "compiled memory"
"""Not of seconds: the memory of compiled steps, as a share of that of the step as written."""
REHEARSED, HERE_UNMEASURED = "rehearsed", "here"
"""Kinds of steps on this machine: `--measure`, and `--on here`."""


def kind_of(sheet: Datasheet, fitted: Constants | None = None) -> str:
    """The kind of a step on a GPU."""
    return KNOWN_DEVICE if sheet.compute_capability in (fitted or constants()).product_share else OTHER_DEVICE


def compiled_bytes(written_bytes: float) -> tuple[int, int] | None:
    """Between which bytes the memory of a compiled step falls in four of five cases. `written_bytes` is that of the
    step as written."""
    spread = constants().spreads.get(COMPILED_MEMORY)
    return None if spread is None else (round(spread.low * written_bytes), round(spread.high * written_bytes))


def with_interval(time: StepTime, kind: str, fitted: Constants | None = None) -> StepTime:
    """The same time with the interval of its kind, if errors of that kind are known."""
    spread = (fitted or constants()).spreads.get(kind)
    if spread is None:
        return time
    return replace(time, interval=Interval(spread.low * time.seconds, spread.high * time.seconds, spread.of))
