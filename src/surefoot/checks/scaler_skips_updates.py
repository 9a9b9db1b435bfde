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


def check(evidence: Evidence) -> Iterator[Finding]:
    scaling = evidence.scaling
    if scaling is not None and scaling.attempts >= 4 and scaling.skipped > 0.75 * scaling.attempts:
        yield Finding(
            check="scaler-skips-updates",
            severity="warning",
            seen=f"the scaler left out {scaling.skipped} of {scaling.attempts} updates",
            where="the gradient scaler",
            why="every step has an infinite gradient, so hardly any update is made",
            remedy="look for overflow in the forward, or begin with a smaller init_scale",
        )
