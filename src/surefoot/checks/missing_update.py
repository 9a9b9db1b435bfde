"""missing-update

## What it does
Reports a loop that back-propagates again and again while no optimizer ever makes an update.

## Why it hurts
Gradients are computed and thrown away; the weights never move.

## Buggy
```python
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
```

## Fixed
```python
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
```

## What looks like it and is fine
Weights that are moved by hand; the gradient of an input; a loop without an optimizer.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    if evidence.updates or evidence.weights_by_hand or not evidence.optimizers:
        return
    reaching = [backward for backward in evidence.backwards if backward.reaches_optimized]
    if len(reaching) >= 3:
        yield Finding(
            check="missing-update",
            severity="error",
            seen=f"{len(reaching)} backwards reached what {evidence.optimizers[0].kind} holds, and it made no update",
            where=reaching[-1].where or "the loop",
            why="gradients are computed and thrown away; the weights never move",
            remedy="call optimizer.step() after backward",
        )
