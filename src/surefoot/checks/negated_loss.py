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
Adversarial and reversal terms beside a loss of labels; optimizers that take turns and play against each other;
policy gradients.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for optimizer, first, last in stages(evidence):
        sign = -1 if evidence.optimizers[optimizer].maximizes else 1
        losses = [loss for loss in evidence.losses if first <= loss.update <= last]
        backwards = [each for each in evidence.backwards if first <= each.update <= last]
        weights = [weight * sign for loss in losses for weight in loss.weights if weight]
        of_labels = [weight * sign for loss in losses if loss.distinct for weight in loss.weights if weight]
        by_hand = bool(backwards) and all(each.ascends for each in backwards) and not weights and sign > 0
        wholly = by_hand or (len(weights) >= 2 and max(weights) < 0)
        if wholly or (len(of_labels) >= 4 and max(of_labels) < 0):
            how = "the optimizer has maximize=True" if sign < 0 else "it enters with a negative weight"
            what = "the loss" if wholly else "the loss of the labels"
            yield Finding(
                check="negated-loss",
                severity="error" if wholly else "warning",
                seen=f"in all {len(backwards)} backwards {what} is maximised: {how}",
                where=backwards[0].where or "the recipe's loss",
                why="every update makes the model worse at what the loss measures",
                remedy="back-propagate the loss itself, with maximize=False",
            )
            return


def stages(evidence: Evidence) -> Iterator[tuple[int, int, int]]:
    """Optimizers that do not take turns with others, each with its first and its last update."""
    order = [update.optimizer for update in evidence.updates]
    for optimizer in dict.fromkeys(order):
        first, last = order.index(optimizer), len(order) - 1 - order[::-1].index(optimizer)
        if set(order[first : last + 1]) == {optimizer}:
            yield optimizer, first, last
