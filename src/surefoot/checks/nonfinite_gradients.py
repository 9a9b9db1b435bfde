"""nonfinite-gradients

## What it does
Reports updates made from gradients that hold infinity or NaN.

## Why it hurts
One infinite entry makes a clipped gradient zero or NaN everywhere, and after the update every weight is
NaN.

## Buggy
```python
loss = (scores / lengths).log().mean()  # a length of zero
```

## Fixed
```python
loss = (scores / lengths.clamp(min=1)).log().mean()
```

## What looks like it and is fine
Steps that a gradient scaler leaves out.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    spoilt = [update for update in evidence.updates if update.nonfinite]
    if spoilt:
        first = spoilt[0]
        yield Finding(
            check="nonfinite-gradients",
            severity="error",
            seen=f"{len(spoilt)} of {len(evidence.updates)} updates used infinite or NaN gradients; first update "
            f"{first.number}, {len(first.nonfinite)} of {first.parameters} parameters, such as {first.nonfinite[0]}",
            where=first.where or first.nonfinite[0],
            why="after such an update every weight it touches is NaN",
            remedy="look at the loss of that batch for log(0), division by zero or a mean over nothing",
        )
