"""zero-learning-rate

## What it does
Reports an optimizer whose learning rate is zero in every update seen, or drops to zero at once and stays there. Also
reports a warm-up that the run never leaves, by a scheduler or by hand.

## Why it hurts
Nothing moves. It happens when a schedule returns 0, as integer division does (`step // warmup`), or when a
warm-up never ends.

## Buggy
```python
LambdaLR(optimizer, lambda step: step // 1000)
```

## Fixed
```python
LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1000))
```

## What looks like it and is fine
A warm-up whose first update has a rate of zero; one that is still running.
"""

from collections.abc import Iterator
from itertools import pairwise

from surefoot.checks.facts.loop import LoopFacts, Update
from surefoot.checks.facts.updates import Schedule, UpdateFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-effect", "adapters-never-move")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_RISING, _WARM = 0.3, 0.01
"""A run that ended without reaching this share of its planned rate has only warmed up: if the rate never falls, and
in any case."""
_NO_RATE = 0.5
"""With this rate or more, the schedule's factor is the whole rate, as for the first Transformers."""


def check(loop_facts: LoopFacts, update_facts: UpdateFacts) -> Iterator[Finding]:
    for number, optimizer in enumerate(loop_facts.optimizers):
        updates = [update for update in loop_facts.updates if update.optimizer == number]
        schedule = next((each for each in update_facts.schedules if each.optimizer == number), None)
        if len(updates) >= 2 and all(update.rate == 0 for update in updates):
            yield _finding(f"the learning rate of {optimizer.kind} is 0 in all {len(updates)} updates", updates)
        elif schedule is not None and updates and _only_warms(schedule, updates[-1].planned_rate):
            highest, planned = max(schedule.rates), updates[-1].planned_rate
            course = f"only rose to {highest:.1e} in {len(schedule.rates)} updates; {planned:g} was planned"
            yield _finding(f"the learning rate of {optimizer.kind} {course}", updates)
        elif schedule is not None and updates and not schedule.others_updated and (off := _switched_off(schedule)):
            yield _finding(f"the learning rate of {optimizer.kind} drops to 0 at once and stays there: {off}", updates)


def _only_warms(schedule: Schedule, planned: float | None) -> bool:
    if not planned or planned >= _NO_RATE or not schedule.ended or len(schedule.rates) < 8:
        return False
    if not schedule.calls and not schedule.by_hand:
        return False  # a scheduler that is never stepped, which has a check of its own
    rises = all(a <= b for a, b in pairwise(schedule.rates))
    if schedule.by_hand and not (rises and schedule.rates[-3] < schedule.rates[-1]):
        return False  # the rate that the optimizer was built with may mean nothing
    return max(schedule.rates) < (_RISING if rises else _WARM) * planned


def _switched_off(schedule: Schedule) -> str:
    """Did the rate drop from over half of its highest to zero, for more than a third of a run that has ended?"""
    rates = [rate for rate in schedule.rates if rate]
    off = len(schedule.rates) - len(rates)
    at_once = bool(rates) and not any(schedule.rates[-off:]) and rates[-1] > 0.5 * max(rates)
    long = off >= 3 and 3 * off > len(schedule.rates)
    return f"the last {off} of {len(schedule.rates)} updates" if schedule.ended and at_once and long else ""


def _finding(seen: str, updates: list[Update]) -> Finding:
    return Finding(
        check="zero-learning-rate",
        severity="error",
        seen=seen,
        where=updates[0].where or "the recipe's optimizer",
        why="no weight moves",
        remedy="give the optimizer a rate above zero; check what the schedule returns for the first steps",
    )
