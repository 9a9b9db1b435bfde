"""scheduler-at-wrong-rate

## What it does
Reports a scheduler whose steps and horizon are counted in different units: stepped per batch instead of per epoch,
per micro-batch, or the other way round. Also reports a rate set by hand that shows the same course.

## Why it hurts
A cosine over 100 epochs that is stepped per batch is at zero within the first epoch and then rises again. Training
continues with a learning rate that nobody chose.

## Buggy
```python
scheduler = CosineAnnealingLR(optimizer, T_max=epochs)
for batch in loader:
    ...
    scheduler.step()
```

## Fixed
```python
scheduler = CosineAnnealingLR(optimizer, T_max=epochs * len(loader))
for batch in loader:
    ...
    scheduler.step()
```

## What looks like it and is fine
Warm restarts; a cosine that rises and falls with a period of whole passes; a constant tail; a step per micro-batch of
a schedule that counts micro-batches; a run that stops early, unless it has hardly begun.
"""

from collections.abc import Iterator
from itertools import pairwise

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.ranks import RankFacts
from surefoot.checks.facts.updates import Schedule, UpdateFacts
from surefoot.records.finding import Finding

EXPLAINS = ("scheduler-out-of-order",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_SPENT = 1e-3
"""A rate below this share of the highest so far trains nothing."""
_LONG = 1 / 3
"""More than this share of all updates is no mere tail."""
_FITS = 0.1
"""A horizon that differs from a count by no more than this share is that count."""


def check(loop_facts: LoopFacts, update_facts: UpdateFacts, rank_facts: RankFacts) -> Iterator[Finding]:
    parts = [update.micro_batches for update in loop_facts.updates if update.micro_batches]
    usual = max(set(parts), key=parts.count, default=1)
    ranks = rank_facts.ranks.count if rank_facts.ranks is not None else 1
    for schedule in update_facts.schedules:
        fault = _fault(schedule)
        if seen := fault or _doubt(schedule, usual, ranks):
            yield Finding(
                check="scheduler-at-wrong-rate",
                severity="error" if fault else "warning",
                seen=f"{schedule.kind}: {schedule.calls} steps over {schedule.updates} updates; {seen}",
                where=schedule.where or schedule.kind,
                why="the learning rate does not follow the intended curve",
                remedy="count the horizon in the unit that step() is called in: updates or epochs",
            )


def _fault(schedule: Schedule) -> str:
    """What no schedule should do: stepped per update, it ends within a pass, or after as many steps as passes."""
    calls, epoch, left = schedule.calls, schedule.epoch or 0, schedule.share_after_epoch
    if not _per_update(schedule) or schedule.by_hand:
        return ""
    horizon = schedule.horizon if schedule.horizon is not None and not _warms_up(schedule) else calls + epoch
    if schedule.turns and schedule.ended and horizon == schedule.passes and calls > horizon + 1:
        return f"it ended after {horizon} steps, the number of passes, and the rate rises again"
    goes_on = calls > horizon if schedule.ended else horizon < 0.5 * epoch or calls > horizon
    goes_on &= schedule.kind != "MultiStepLR" or schedule.passes >= 2
    if epoch > 1 and horizon < epoch and goes_on:
        return f"stepped per update, it ends after {horizon}, within the first pass of {epoch} updates"
    if left is not None and left < _SPENT:
        return f"stepped per update, one pass of {epoch} updates leaves {left:.0e} of the rate"
    return ""


def _warms_up(schedule: Schedule) -> bool:
    return schedule.kind == "LinearLR" and bool(schedule.rates) and schedule.rates[-1] > schedule.rates[0]


def _doubt(schedule: Schedule, parts: int, ranks: int) -> str:
    """What is rarely intended."""
    by_end = "" if schedule.horizon is None else _beside(schedule, schedule.horizon)
    by_course = _at_a_time(schedule, parts) or by_end or _spent(schedule)
    return by_course or _ends_by_parts(schedule, parts) or _of_all_ranks(schedule, ranks) or _hardly_begun(schedule)


def _at_a_time(schedule: Schedule, parts: int) -> str:
    """Several steps between two updates, unless the schedule counts micro-batches and steps once for each."""
    times, calls, horizon = schedule.between_updates, schedule.calls, schedule.horizon
    fits = schedule.ended and horizon is not None and abs(horizon - calls) <= _FITS * calls
    if times < 2 or (times == parts and fits):
        return ""
    return f"{times} steps came between one update and the next"


def _spent(schedule: Schedule) -> str:
    """More than a third of all updates used almost nothing of the rate, after the highest."""
    rates, most = schedule.rates, max(schedule.rates, default=0.0)
    if not _per_update(schedule) or len(rates) < 8 or not most:
        return ""
    after = rates[rates.index(most) :]
    spent = [rate for rate in after if rate < _SPENT * most]
    if schedule.by_hand and spent and min(spent) and not any(_SPENT * most <= rate < 0.5 * most for rate in after):
        return ""  # it dropped at once, and not to zero: another stage of training
    return (
        f"{len(spent)} updates had less than {_SPENT:g} of the highest rate" if len(spent) > _LONG * len(rates) else ""
    )


def _ends_by_parts(schedule: Schedule, parts: int) -> str:
    """A rate that came down gradually, over as many micro-batches as the run has updates."""
    rates = schedule.rates
    if parts < 2 or not schedule.ended or len(rates) < 4 * parts or not max(rates):
        return ""
    top = rates.index(max(rates))
    end = top + rates[top:].index(min(rates[top:]))
    down = [one - other for one, other in pairwise(rates[top : end + 1])]
    gradual = len(down) >= 3 and min(down) >= 0 and max(down) < 0.5 * sum(down) and sum(down) > 0.5 * max(rates)
    expected = len(rates) / parts
    if gradual and abs(end - expected) <= 1 + 0.1 * expected:
        return f"it ended after {end} of {len(rates)} updates of {parts} micro-batches each"
    return ""


def _hardly_begun(schedule: Schedule) -> str:
    """A run that ended in the first hundredth of its schedule, or a schedule of updates stepped once per pass."""
    if schedule.horizon is not None and not schedule.ended and _once_per_pass(schedule, schedule.horizon):
        return f"stepped once per pass of {schedule.epoch} updates, it would need {schedule.horizon} passes to end"
    far = schedule.horizon is not None and schedule.calls <= 0.01 * schedule.horizon
    if schedule.ended and far and _per_update(schedule) and schedule.updates >= 8:
        return f"the run has ended, but the schedule needs {schedule.horizon:,} steps"
    return ""


def _of_all_ranks(schedule: Schedule, ranks: int) -> str:
    """A run that ended after one part of its schedule, which has as many parts as there are ranks."""
    horizon, calls = schedule.horizon or 0, schedule.calls
    if ranks > 1 and schedule.ended and calls >= 8 and abs(horizon - ranks * calls) <= 0.05 * horizon:
        return f"the run has ended, but the schedule's {horizon} steps count those of all {ranks} ranks"
    return ""


def _per_update(schedule: Schedule) -> bool:
    return schedule.updates >= 2 and schedule.calls >= 0.9 * schedule.updates


def _once_per_pass(schedule: Schedule, horizon: int) -> bool:
    """Is it stepped once per pass, although its horizon is a number of updates in whole passes?"""
    calls, updates, epoch = schedule.calls, schedule.updates, schedule.epoch or 0
    per_pass = epoch >= 3 and 1 <= calls <= updates / (0.7 * epoch)
    return per_pass and horizon >= 2 * epoch and horizon % epoch == 0


def _beside(schedule: Schedule, horizon: int) -> str:
    """What is wrong with this number of calls for this horizon."""
    calls, updates = schedule.calls, max(schedule.updates, len(schedule.rates))
    if schedule.turns and calls > horizon + 1:
        return "" if _swings(schedule, horizon) else f"it ended after {horizon} steps, and the rate rises again"
    near = abs(horizon - updates) <= max(calls, _FITS * updates)
    if schedule.ended and calls and updates >= 4 and calls < 0.5 * horizon and near:
        return f"its horizon of {horizon} is the number of updates"
    if schedule.updates >= 4 and calls > 1.5 * horizon and schedule.kind != "MultiStepLR":
        return f"it ended after {horizon} steps"
    return ""


def _swings(schedule: Schedule, horizon: int) -> bool:
    """Should a cosine rise and fall: with a period in passes if stepped rarely, or in updates of whole passes?"""
    if schedule.calls < 2 * horizon:
        return False
    whole = bool(schedule.epoch) and horizon % (schedule.epoch or 1) == 0 and horizon != schedule.passes
    return whole if _per_update(schedule) else True
