"""wrong-policy-ratio

## What it does
Reports a clipped ratio of probabilities that is not 1 before the first update, or of whose two sides the larger one
is kept.

## Why it hurts
Before the first update the policy is the one that acted, so every ratio is 1. If not, the old log-probabilities
belong to other actions or states. Keeping the larger side undoes the clipping.

## Buggy
```python
loss = -torch.max(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
```

## Fixed
```python
loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
```

## What looks like it and is fine
Ratios of a model with dropout or batch norm in training mode; the maximum of two negated objectives.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in (*loss_facts.broken("ratio", 1), *loss_facts.broken("clipping"))[:1]:
        yield Finding(
            check="wrong-policy-ratio",
            severity="warning",
            seen=f"the clipped ratio of probabilities is off: {term.fault}",
            where=term.where or "the recipe's loss",
            why="the ratio does not say how much likelier the policy has made its own actions",
            remedy="keep the log-probabilities of the actions as they were taken, and the smaller of both objectives",
        )
