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


WHOLE_RECOMPUTED = 1.134
"""The most that a model compiled as a whole took, as a share of the step as written, where that recomputes: it is no
longer recomputed block by block. One case was measured: docs/measured/plan-memory.md."""


def compiled_bytes(written_bytes: float, *, whole_recomputed: bool = False) -> tuple[int, int] | None:
    """Between which bytes the memory of a compiled step falls in four of five cases. `written_bytes` is that of the
    step as written. `whole_recomputed` says that it recomputes, and that the model is compiled as a whole."""
    spread = constants().spreads.get(COMPILED_MEMORY)
    if spread is None:
        return None
    high = max(spread.high, WHOLE_RECOMPUTED if whole_recomputed else 0.0)
    return round(spread.low * written_bytes), round(high * written_bytes)


def with_interval(time: StepTime, kind: str, fitted: Constants | None = None) -> StepTime:
    """The time with the interval of its kind, if errors of that kind are known. The interval always holds the time.

    A model whose predictions nearly all err on one side is corrected by the median of these errors.
    """
    spread = (fitted or constants()).spreads.get(kind)
    if spread is None:
        return time
    interval = Interval(spread.low * time.seconds, spread.high * time.seconds, spread.of)
    if spread.middle != 1:
        note = (
            f"real steps take {spread.middle:.3g} times as long as these rates allow, the median of {spread.runs} steps"
        )
        time = replace(time.times(spread.middle), assumptions=(*time.assumptions, note))
    return replace(time, interval=interval)
