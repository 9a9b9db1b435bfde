"""negated-loss

## What it does
Reports a loss that is maximised: it enters what is back-propagated with a negative weight, or the optimizer
has `maximize=True`.

## Why it hurts
Every update makes the model worse. The printed loss may look like one that falls, if the negative is
printed.

## Buggy
```python
(-F.cross_entropy(model(x), y)).backward()
```

## Fixed
```python
F.cross_entropy(model(x), y).backward()
```

## What looks like it and is fine
Adversarial and reversal terms beside another loss; two optimizers that play against each other; policy
gradients.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    active = [optimizer for optimizer in evidence.optimizers if optimizer.updates]
    if len(active) != 1:
        return
    weights = [weight for loss in evidence.losses for weight in loss.weights if weight]
    sign = -1 if active[0].maximizes else 1
    by_hand = evidence.backwards and all(each.ascends for each in evidence.backwards) and not weights
    if (by_hand and sign > 0) or (len(weights) >= 2 and all(weight * sign < 0 for weight in weights)):
        how = "the optimizer has maximize=True" if sign < 0 else "it enters with a negative weight"
        yield Finding(
            check="negated-loss",
            severity="error",
            seen=f"in all {len(evidence.backwards)} backwards the loss is maximised: {how}",
            where=evidence.backwards[0].where or "the recipe's loss",
            why="every update makes the model worse at what the loss measures",
            remedy="back-propagate the loss itself, with maximize=False",
        )
