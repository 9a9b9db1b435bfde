"""scaler-skips-updates

## What it does
Reports a gradient scaler that leaves out more than half of the updates.

## Why it hurts
Every step has an infinite gradient, so no update is made. The loss is printed and does not fall.

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
The first steps of a run, while the scale finds its size.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding

_MOST_SKIPPED = 0.2
"""Once it has found its scale, a scaler leaves out far less than this share."""


def check(evidence: Evidence) -> Iterator[Finding]:
    scaling = evidence.scaling
    if scaling is None or scaling.attempts < 4:
        return
    if scaling.skipped > 0.75 * scaling.attempts or scaling.skipped_late > max(3, _MOST_SKIPPED * scaling.attempts):
        yield Finding(
            check="scaler-skips-updates",
            severity="warning",
            seen=f"the scaler left out {scaling.skipped} of {scaling.attempts} updates",
            where="the gradient scaler",
            why="step after step has an infinite gradient, so updates are left out",
            remedy="look for overflow in the forward, or begin with a smaller init_scale and let it grow less often",
        )
