"""constant-targets

## What it does
Reports training in which every target seen is the same class, letter or number. If there are several losses, it
reports one with such targets, if a part of all samples of the data set holds nothing else.

## Why it hurts
There is nothing to learn but a constant. The loss falls quickly, which looks like success.

## Buggy
```python
label = torch.zeros_like(label)
```

## Fixed
```python
label = batch["label"]
```

## What looks like it and is fine
The two halves of an adversarial game, each with a constant target; a few targets of a class that most samples have; a
residual that should be zero, as of a differential equation.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Aim, Loss, LossFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = ("input-ignored", "regression-on-class-numbers")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_CLASSES = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "ctc_loss")
_AIMED = ("classes", "picked", "binary", "distance")
_DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub", "rsub")


_FEWEST = 24
"""At least this many targets must be seen if the labels behind them cannot be counted."""
_CHANCE = 1e-3


def check(
    loop_facts: LoopFacts, loss_facts: LossFacts, gradient_facts: GradientFacts, sample_facts: SampleFacts
) -> Iterator[Finding]:
    if any(each.sorted_labels for each in sample_facts.samples):
        return
    judged = _of_constant_parts(loss_facts, sample_facts)
    if not judged and len([each for each in loop_facts.optimizers if each.updates]) == 1:
        judged = _of_all_losses(loss_facts, gradient_facts, sample_facts)
    if judged:
        first, counts = judged[0], [_count(each) for each in judged]
        yield Finding(
            check="constant-targets",
            severity="warning",
            seen=f"all {sum(counts):,} targets of {counted(len(judged), 'loss')} are {first.constant}",
            where=(first.where if isinstance(first, Loss) else first.model) or "the recipe's data",
            why="there is nothing to learn but a constant",
            remedy="check where the labels are read, cast or sliced",
        )


def _of_constant_parts(loss_facts: LossFacts, sample_facts: SampleFacts) -> list[Loss | Aim]:
    """The losses of one line whose only target is all that some part of the samples holds."""
    parts = {value for each in sample_facts.samples for value in each.constant_parts}
    lines: dict[str, list[Loss | Aim]] = {}
    for loss in loss_facts.losses:
        if loss.function in _CLASSES and not loss.ranks:
            lines.setdefault(loss.where, []).append(loss)
    for losses in lines.values():
        constants = {each.constant for each in losses}
        enough = len({each.backward for each in losses}) >= 3 and sum(map(_count, losses)) >= _FEWEST
        if enough and len(constants) == 1 and constants <= parts:
            return losses
    return []


def _of_all_losses(loss_facts: LossFacts, gradient_facts: GradientFacts, sample_facts: SampleFacts) -> list[Loss | Aim]:
    """All losses, if all their targets are the same."""
    judged: list[Loss | Aim] = [
        loss for loss in loss_facts.losses if (loss.function in _CLASSES and not loss.ranks) or _is_of_outputs(loss)
    ] or [aim for aim in loss_facts.aims if aim.kind in _AIMED and not aim.ranks]
    constants = {loss.constant for loss in judged}
    if _is_a_border(judged, loss_facts, gradient_facts):
        return []
    if len({loss.backward for loss in judged}) < 3 or len(constants) != 1 or None in constants:
        return []
    return [] if _by_chance([_count(each) for each in judged], sample_facts) else judged


def _is_a_border(judged: list[Loss | Aim], loss_facts: LossFacts, gradient_facts: GradientFacts) -> bool:
    """Is the constant one target among others, like the boundary condition of an equation?"""
    if not any(isinstance(each, Loss) and each.function in _DISTANCES for each in judged):
        return False
    asked = {each.backward for each in judged}
    beside = any(each.backward in asked and each not in judged for each in loss_facts.losses)
    return beside or gradient_facts.derivatives_in_losses


def _count(judged: Loss | Aim) -> int:
    return judged.valid if isinstance(judged, Loss) else judged.targets


def _is_of_outputs(loss: Loss) -> bool:
    """Is it a distance between a model's outputs and targets? One of derivatives or codes may aim at zero."""
    return loss.function in _DISTANCES and loss.of_outputs


def _by_chance(counts: list[int], sample_facts: SampleFacts) -> bool:
    """Could this many targets be equal by chance although the labels differ?"""
    known = [each.commonest_label for each in sample_facts.samples if each.commonest_label is not None]
    if known and max(known) < 1.0:
        return max(known) ** sum(counts) > _CHANCE
    if known:
        return sum(counts) < 4
    return min(counts) < 4 or sum(counts) < _FEWEST
