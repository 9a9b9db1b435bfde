"""negated-loss

## What it does
Reports a loss that is maximised. Either it enters the back-propagated loss with a negative weight, alone or as one of
several terms; or the optimizer has `maximize=True`; or every gradient moves predictions away from their targets; or
every gradient lowers the likelihood of the data, or of samples with a high reward, or the overlap of predictions with
their masks.

## Why it hurts
Every update makes the model worse. The printed loss may still seem to fall, if the negative is printed.

## Buggy
```python
(-F.cross_entropy(model(x), y)).backward()
```

## Fixed
```python
F.cross_entropy(model(x), y).backward()
```

## What looks like it and is fine
Reversed gradients, in a layer or in `.grad`; optimizers that take turns and play against each other; policy
gradients, also of costs; pairs of which one is pulled and the other pushed; distances that are small where the answer
is yes; inputs that are changed to mislead a model; a penalty on shares inside a mask of what is forbidden.
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
                how = "predictions move away from their targets"
            what = "the loss" if wholly or away else "the loss of the labels"
            yield Finding(
                check="negated-loss",
                severity="error" if wholly else "warning",
                seen=f"in all {len(backwards)} backward calls {what} is maximised: {how}",
                where=backwards[0].where or "the recipe's loss",
                why="every update makes the model worse at what the loss measures",
                remedy="back-propagate the loss itself, with maximize=False",
            )
            return
        if lowered := _lowered(loss_facts, numbers, sign):
            of = "the data is lowered" if lowered[0].of_data else "a sample falls as its reward rises"
            yield Finding(
                check="negated-loss",
                severity="warning",
                seen=f"in {len({each.backward for each in lowered})} backward calls the likelihood of {of}",
                where=lowered[0].where or "the recipe's loss",
                why="every update makes the wanted outputs less likely",
                remedy="back-propagate the negative log-likelihood; if it should fall, allow this check",
            )
            return
        if _shrinks_overlap(loss_facts, numbers, sign):
            yield Finding(
                check="negated-loss",
                severity="warning",
                seen="one term of the loss lowers the overlap of predictions with their masks, as a negated Dice does",
                where=backwards[0].where or "the recipe's loss",
                why="every update makes the model worse at what the term measures",
                remedy="minimise 1 - overlap",
            )
            return
        others = (loss for loss in loss_facts.losses if loss.backward not in numbers)
        opposed = [loss for loss in others if min(loss.weights, default=0) > 0]
        turned = any(each.rescaled for each in loop_facts.updates)  # perhaps the gradients of some weights
        if not turned and (term := _subtracted(losses, opposed, sign)):
            yield Finding(
                check="negated-loss",
                severity="warning",
                seen=f"one term of the loss, a {term.function}, enters with a negative weight next to others",
                where=term.where or "the recipe's loss",
                why="every update makes the model worse at what the term measures",
                remedy="add the term; if it is negative on purpose, allow this check",
            )
            return


def _lowered(loss_facts: LossFacts, numbers: list[int], sign: int) -> list[Likelihood]:
    """Likelihoods that fall, if they do so in three or more backwards and none rises."""
    moved = [each for each in loss_facts.likelihoods if each.backward in numbers and each.sign]
    down = all(each.sign * sign < 0 for each in moved) and len({each.backward for each in moved}) >= 3
    return moved if down else []


def _subtracted(losses: list[Loss], opposed: list[Loss], sign: int) -> Loss | None:
    """A term that pushes away from fixed targets, without a counterpart of its kind that pulls.

    The counterpart may train another optimizer, the opponent.
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
    """Are models frozen, trained by other optimizers or just run? Then the optimizer searches for something else.

    A model whose own parameters receive gradients does run: it is no blueprint for what an optimizer holds.
    """
    left = [each for each in model_facts.parameters if not each.optimized and each.trainable]
    return bool(model_facts.parameters) and all(each.reached for each in left)


def _pushes_away(loss_facts: LossFacts, numbers: list[int], sign: int) -> bool:
    """Do three or more backwards move every prediction away from its target?

    A distance is no prediction: it should be small where the answer is yes.
    """
    aims = [aim for aim in loss_facts.aims if aim.backward in numbers and aim.sign and aim.even]
    aims = [aim for aim in aims if not aim.apart or (aim.kind in ("distance", "sided") and aim.class_numbers != 2)]
    return len({aim.backward for aim in aims}) >= 3 and all(aim.sign * sign < 0 for aim in aims)


def _shrinks_overlap(loss_facts: LossFacts, numbers: list[int], sign: int) -> bool:
    """Do three or more backwards lower an overlap with a mask, and none raise it?"""
    aims = [aim for aim in loss_facts.aims if aim.kind == "overlap" and aim.backward in numbers]
    return len({aim.backward for aim in aims}) >= 3 and all(aim.sign * sign < 0 for aim in aims)


def _stages(loop_facts: LoopFacts) -> Iterator[tuple[int, list[int]]]:
    """Optimizers without an opponent, with the numbers of their backwards.

    Such an optimizer does not take turns with others, or every backward that reaches it reaches the same others, too.
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
