"""negated-loss

## What it does
Reports a loss that is maximised: it enters what is back-propagated with a negative weight, the optimizer has
`maximize=True`, or every gradient moves predictions away from the targets they are compared with.

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
    for optimizer, numbers in _stages(evidence):
        if not evidence.optimizers[optimizer].of_models and _is_fixed(evidence):
            continue
        sign = -1 if evidence.optimizers[optimizer].maximizes else 1
        losses = [loss for loss in evidence.losses if loss.backward in numbers]
        backwards = [evidence.backwards[number] for number in numbers]
        weights = [weight * sign for loss in losses for weight in loss.weights if weight]
        of_labels = [weight * sign for loss in losses if loss.distinct for weight in loss.weights if weight]
        by_hand = bool(backwards) and all(each.ascends for each in backwards) and not weights and sign > 0
        wholly = by_hand or (len(weights) >= 2 and max(weights) < 0)
        away = _pushes_away(evidence, numbers, sign) and max(weights, default=-1) < 0
        if wholly or away or (len(of_labels) >= 4 and max(of_labels) < 0):
            how = "the optimizer has maximize=True" if sign < 0 else "it enters with a negative weight"
            if not weights and not by_hand:
                how = "predictions are moved away from their targets"
            what = "the loss" if wholly or away else "the loss of the labels"
            yield Finding(
                check="negated-loss",
                severity="error" if wholly else "warning",
                seen=f"in all {len(backwards)} backwards {what} is maximised: {how}",
                where=backwards[0].where or "the recipe's loss",
                why="every update makes the model worse at what the loss measures",
                remedy="back-propagate the loss itself, with maximize=False",
            )
            return


def _is_fixed(evidence: Evidence) -> bool:
    """Is nothing of any model left to train but what another optimizer holds? Then something else is searched for."""
    return bool(evidence.parameters) and all(each.optimized or not each.trainable for each in evidence.parameters)


def _pushes_away(evidence: Evidence, numbers: list[int], sign: int) -> bool:
    """Is every prediction that is compared with a target moved away from it, in three backwards or more?"""
    aims = [aim for aim in evidence.aims if aim.backward in numbers and aim.sign and aim.even]
    return len({aim.backward for aim in aims}) >= 3 and all(aim.sign * sign < 0 for aim in aims)


def _stages(evidence: Evidence) -> Iterator[tuple[int, list[int]]]:
    """Optimizers that play against no other, with the numbers of their backwards.

    Such an optimizer either does not take turns with others, or no backward reaches what it holds and what they hold.
    """
    order = [update.optimizer for update in evidence.updates]
    for optimizer in dict.fromkeys(order):
        first, last = order.index(optimizer), len(order) - 1 - order[::-1].index(optimizer)
        if set(order[first : last + 1]) == {optimizer}:
            yield optimizer, [n for n, each in enumerate(evidence.backwards) if first <= each.update <= last]
        else:
            own = [n for n, each in enumerate(evidence.backwards) if optimizer in each.optimizers]
            if all(evidence.backwards[n].optimizers == {optimizer} for n in own):
                yield optimizer, own
