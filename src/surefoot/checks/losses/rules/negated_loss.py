"""negated-loss

## What it does
Reports a loss that is maximised: it enters what is back-propagated with a negative weight, alone or as one term of
several, the optimizer has `maximize=True`, every gradient moves predictions away from the targets they are compared
with, or every one lowers the likelihood of what was given, or of what was drawn where its reward is high.

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
Reversed gradients, be it by a layer or in `.grad`; optimizers that take turns and play against each other; policy
gradients, also of costs; pairs of which one is pulled and the other pushed; distances that are small where the answer
is yes; inputs that are changed to mislead a model.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Likelihood, Loss, LossFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, loss_facts: LossFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    for optimizer, numbers in _stages(loop_facts):
        if not loop_facts.optimizers[optimizer].of_models and _is_fixed(model_facts):
            continue
        sign = -1 if loop_facts.optimizers[optimizer].maximizes else 1
        losses = [loss for loss in loss_facts.losses if loss.backward in numbers]
        backwards = [loop_facts.backwards[number] for number in numbers]
        weights = [weight * sign for loss in losses for weight in loss.weights if weight]
        of_labels = [weight * sign for loss in losses if loss.distinct for weight in loss.weights if weight]
        by_hand = bool(backwards) and all(each.ascends for each in backwards) and not weights and sign > 0
        wholly = by_hand or (len(weights) >= 2 and max(weights) < 0)
        away = _pushes_away(loss_facts, numbers, sign) and max(weights, default=-1) < 0
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
        if lowered := _lowered(loss_facts, numbers, sign):
            of = "what was given is lowered" if lowered[0].of_data else "what was drawn falls with its reward"
            yield Finding(
                check="negated-loss",
                severity="warning",
                seen=f"in {len({each.backward for each in lowered})} backwards the likelihood of {of}",
                where=lowered[0].where or "the recipe's loss",
                why="every update makes less likely what the model is to give",
                remedy="back-propagate the negative of the log-likelihood; if it is to fall on purpose, allow this",
            )
            return
        others = (loss for loss in loss_facts.losses if loss.backward not in numbers)
        opposed = [loss for loss in others if min(loss.weights, default=0) > 0]
        turned = any(each.rescaled for each in loop_facts.updates)  # the gradients of some weights, perhaps
        if not turned and (term := _subtracted(losses, opposed, sign)):
            yield Finding(
                check="negated-loss",
                severity="warning",
                seen=f"one term of the loss, a {term.function}, enters with a negative weight beside others",
                where=term.where or "the recipe's loss",
                why="every update makes the model worse at what the term measures",
                remedy="add the term; to move away from something on purpose, allow this",
            )
            return


def _lowered(loss_facts: LossFacts, numbers: list[int], sign: int) -> list[Likelihood]:
    """Likelihoods that fall, if they do in three backwards or more and none of them rises."""
    moved = [each for each in loss_facts.likelihoods if each.backward in numbers and each.sign]
    down = all(each.sign * sign < 0 for each in moved) and len({each.backward for each in moved}) >= 3
    return moved if down else []


def _subtracted(losses: list[Loss], opposed: list[Loss], sign: int) -> Loss | None:
    """A term that pushes away from targets without a gradient, and has no counterpart of its kind that pulls.

    The counterpart may be what another optimizer, an opponent, is trained with.
    """
    terms: dict[int, list[Loss]] = {}
    for loss in losses:
        terms.setdefault(loss.site, []).append(loss)
    weighed = [(group[0], [w * sign for each in group for w in each.weights if w]) for group in terms.values()]
    added = [loss for loss, weights in weighed if weights and min(weights) > 0]
    for loss, weights in weighed:
        alike = any((loss.function, loss.shape) == (each.function, each.shape) for each in (*added, *opposed))
        if added and len(weights) >= 4 and max(weights) < 0 and loss.fixed_target and not alike:
            return loss
    return None


def _is_fixed(model_facts: ModelFacts) -> bool:
    """Is nothing of any model left to train but what another optimizer holds? Then something else is searched for.

    Models whose own parameters receive gradients are the ones that run, and not plans for what an optimizer holds.
    """
    left = [each for each in model_facts.parameters if not each.optimized and each.trainable]
    return bool(model_facts.parameters) and all(each.reached for each in left)


def _pushes_away(loss_facts: LossFacts, numbers: list[int], sign: int) -> bool:
    """Is every prediction that is compared with a target moved away from it, in three backwards or more?

    A distance is not one: it is to be small where the answer is yes.
    """
    aims = [aim for aim in loss_facts.aims if aim.backward in numbers and aim.sign and aim.even]
    aims = [aim for aim in aims if not aim.apart or (aim.kind in ("distance", "sided") and aim.class_numbers != 2)]
    return len({aim.backward for aim in aims}) >= 3 and all(aim.sign * sign < 0 for aim in aims)


def _stages(loop_facts: LoopFacts) -> Iterator[tuple[int, list[int]]]:
    """Optimizers that play against no other, with the numbers of their backwards.

    Such an optimizer either does not take turns with others, or every backward that reaches what it holds reaches what
    the same others hold, and no backward reaches but some of them.
    """
    order = [update.optimizer for update in loop_facts.updates]
    for optimizer in dict.fromkeys(order):
        first, last = order.index(optimizer), len(order) - 1 - order[::-1].index(optimizer)
        if set(order[first : last + 1]) == {optimizer}:
            yield optimizer, [n for n, each in enumerate(loop_facts.backwards) if first <= each.update <= last]
        else:
            together = next(
                (each.optimizers for each in loop_facts.backwards if optimizer in each.optimizers), {optimizer}
            )
            own = [n for n, each in enumerate(loop_facts.backwards) if together & each.optimizers]
            one_way = len({loop_facts.optimizers[each].maximizes for each in together}) == 1
            if one_way and all(loop_facts.backwards[n].optimizers == together for n in own):
                yield optimizer, own
