"""scaler-skips-updates

## What it does
Reports a gradient scaler that skips most updates, takes very long until the first one, or keeps skipping some after
it has found its scale.

## Why it hurts
Every step has an infinite gradient, so no update is made. The loss is printed but does not fall. A schedule that is
stepped anyway spends its warm-up on updates that were never made.

## Buggy
```python
loss = criterion(model(x), y) * 1e30
scaler.scale(loss).backward()
```

## Fixed
```python
loss = criterion(model(x), y)
scaler.scale(loss).backward()
```

## What looks like it and is fine
The first steps of a run, while the scale settles: torch starts with 2**16, which is down to 1 after sixteen halvings.
"""

from collections.abc import Iterator

from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding

EXPLAINS = ("missing-update", "zero-grad-between-micro-batches", "leftover-micro-batches", "scheduler-out-of-order")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_MOST_SKIPPED = 0.2
"""A scaler that has found its scale skips far less than this share."""
_LONG = 24
"""After this many halvings even the largest usual initial scale fits."""


def check(precision_facts: PrecisionFacts) -> Iterator[Finding]:
    scaling = precision_facts.scaling
    if scaling is None or scaling.attempts < 4:
        return
    late = scaling.skipped_late > max(3, _MOST_SKIPPED * scaling.attempts)
    if late or scaling.skipped > 0.75 * scaling.attempts or scaling.skipped_first > _LONG:
        first = (
            "" if late or scaling.skipped_first <= _LONG else f", {scaling.skipped_first} of them before the first one"
        )
        yield Finding(
            check="scaler-skips-updates",
            severity="warning",
            seen=f"the scaler skipped {scaling.skipped} of {scaling.attempts} updates{first}",
            where="the gradient scaler",
            why="gradients are infinite step after step, so updates are skipped",
            remedy="look for overflow in the forward, or set a smaller init_scale and a larger growth_interval",
        )
