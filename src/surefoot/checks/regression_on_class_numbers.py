"""regression-on-class-numbers

## What it does
Reports a squared or absolute error whose targets look like the numbers of classes: one whole number per sample,
from 0 on.

## Why it hurts
Class 9 is then nine times as far from class 0 as class 1 is, which says nothing about classes. The model learns
the mean of the numbers where it is in doubt.

## Buggy
```python
loss = F.mse_loss(model(x)[:, 0], label.float())
```

## Fixed
```python
loss = F.cross_entropy(model(x), label)
```

## What looks like it and is fine
Counts, stars and other numbers that are an order; a squared error of yes and no.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    distances = [loss for loss in evidence.losses if loss.function in ("mse_loss", "l1_loss", "smooth_l1_loss")]
    classes = max((loss.class_numbers for loss in distances), default=0)
    if not distances or any(not loss.class_numbers for loss in distances) or classes < 3:
        return
    yield Finding(
        check="regression-on-class-numbers",
        severity="info",
        seen=f"the targets of {len(distances)} losses are whole numbers from 0 to {classes - 1}, one for each sample",
        where=distances[0].where or "the recipe's loss",
        why="if they are the numbers of classes, their distances mean nothing",
        remedy="use cross_entropy with one output per class; if they are an order or a count, allow this",
    )
