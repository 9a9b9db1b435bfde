"""regression-on-class-numbers

## What it does
Reports a squared or absolute error whose targets look like class numbers: one whole number per sample, from 0 on.

## Why it hurts
Class 9 is then nine times as far from class 0 as class 1 is, which means nothing for classes. When in doubt, the
model learns the mean of the numbers.

## Buggy
```python
loss = F.mse_loss(model(x)[:, 0], label.float())
```

## Fixed
```python
loss = F.cross_entropy(model(x), label)
```

## What looks like it and is fine
Counts, stars and other numbers with an order; a squared error of yes and no.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    distances = [loss for loss in loss_facts.losses if loss.function in _DISTANCES]
    by_hand = [aim for aim in loss_facts.aims if aim.kind == "distance"]
    differences = [loss for loss in loss_facts.losses if loss.function in ("sub", "rsub") and loss.class_numbers]
    seen = [each.class_numbers for each in (distances or by_hand or differences)]
    if not seen or not all(seen) or max(seen) < 3:
        return
    first = next(iter(distances or differences), None)
    yield Finding(
        check="regression-on-class-numbers",
        severity="info",
        seen=f"the targets of {counted(len(seen), 'loss')} are whole numbers from 0 to {max(seen) - 1}, "
        "one for each sample",
        where=(first.where if first is not None else by_hand[0].model) or "the recipe's loss",
        why="if they are class numbers, the distances between them mean nothing",
        remedy="use cross_entropy with one output per class; if they are ratings or counts, allow this check",
    )
