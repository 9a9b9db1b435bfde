"""scaler-skips-updates

## What it does
Reports a gradient scaler that leaves out most updates, that takes very long until the first one, or that goes on
leaving some out once it has found its scale.

## Why it hurts
Every step has an infinite gradient, so no update is made. The loss is printed and does not fall. A schedule that
is stepped all the same spends its warm-up on updates that were never made.

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
The first steps of a run, while the scale finds its size: torch begins with 2**16, which is down to 1 after sixteen.
"""

from collections.abc import Iterator

from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding

EXPLAINS = ("missing-update", "zero-grad-between-micro-batches", "leftover-micro-batches", "scheduler-out-of-order")
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""

_MOST_SKIPPED = 0.2
"""Once it has found its scale, a scaler leaves out far less than this share."""
_LONG = 24
"""By so many halvings even the largest scale that anybody begins with is down to one that fits."""


def check(precision_facts: PrecisionFacts) -> Iterator[Finding]:
    scaling = precision_facts.scaling
    if scaling is None or scaling.attempts < 4:
        return
    late = scaling.skipped_late > max(3, _MOST_SKIPPED * scaling.attempts)
    if late or scaling.skipped > 0.75 * scaling.attempts or scaling.skipped_first > _LONG:
        first = "" if late or scaling.skipped_first <= _LONG else f", {scaling.skipped_first} of them before the first"
        yield Finding(
            check="scaler-skips-updates",
            severity="warning",
            seen=f"the scaler left out {scaling.skipped} of {scaling.attempts} updates{first}",
            where="the gradient scaler",
            why="step after step has an infinite gradient, so updates are left out",
            remedy="look for overflow in the forward, or begin with a smaller init_scale and let it grow less often",
        )
