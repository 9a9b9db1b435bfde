"""broadcast-loss

## What it does
Reports a prediction and a target whose shapes differ and broadcast to more elements than either has.

## Why it hurts
(N, 1) against (N,) becomes (N, N): every prediction is compared with every target. The best answer to that
is the mean of all targets, and the loss settles there.

## Buggy
```python
loss = ((model(x) - y) ** 2).mean()  # (N, 1) - (N,)
```

## Fixed
```python
loss = ((model(x).squeeze(-1) - y) ** 2).mean()
```

## What looks like it and is fine
Pairwise losses written with `[:, None]`, where both sides have the same number of dimensions.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    spread = [loss for loss in loss_facts.losses if loss.broadcast]
    if spread:
        first = spread[0]
        yield Finding(
            check="broadcast-loss",
            severity="error",
            seen=f"{first.function} broadcast {first.shape} and {first.target_shape} to {first.broadcast}",
            where=first.where or "the recipe's loss",
            why="every prediction is compared with every target, so the model learns their mean",
            remedy="give both the same shape: squeeze the prediction or unsqueeze the target",
        )
