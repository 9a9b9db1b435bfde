"""all-targets-ignored

## What it does
Reports a batch in which the loss ignores every target, and hand-written masks that leave nothing of a loss.

## Why it hurts
The mean over nothing is NaN, or the step is wasted. It happens when truncation cuts off all answers and only the
masked prompt is left.

## Buggy
```python
labels = torch.full_like(tokens, -100)
loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
```

## Fixed
```python
labels = tokens.masked_fill(is_prompt, -100)
loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
```

## What looks like it and is fine
Batches in which some targets are ignored; a sum over a batch without targets, if other batches have some; a mask of
zeros next to other terms that train.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.records.finding import Finding

EXPLAINS = ("nonfinite-gradients", "constant-targets", "update-without-gradients", "adapters-never-move")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def _is_spoilt(loss: Loss) -> bool:
    """Is the mean over nothing, which is NaN, back-propagated? A sum over nothing adds nothing."""
    return loss.reduction == "mean" and any(loss.weights)


def check(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[Finding]:
    asked = [loss for loss in loss_facts.losses if loss.targets]
    full = {loss.site for loss in asked if loss.valid}
    empty = [loss for loss in asked if not loss.valid and (_is_spoilt(loss) or loss.site not in full)]
    if empty:
        yield Finding(
            check="all-targets-ignored",
            severity="error",
            seen=f"in {len(empty)} of {len(loss_facts.losses)} losses all {empty[0].targets:,} targets are ignored",
            where=empty[0].where or "the recipe's data",
            why="the mean over nothing is NaN, or the step is wasted",
            remedy="drop samples without a target before batching, or truncate the prompt instead of the answer",
        )
    elif loss_facts.emptied_lines and any(update.all_zero or update.nonfinite for update in loop_facts.updates):
        yield Finding(
            check="all-targets-ignored",
            severity="error",
            seen="a mask removes the whole loss every time, and gradients are zero or NaN",
            where=loss_facts.emptied_lines[0],
            why="the mean over nothing is NaN, or the step is wasted",
            remedy="check how the mask is made: where it is true, and from which numbers",
        )
