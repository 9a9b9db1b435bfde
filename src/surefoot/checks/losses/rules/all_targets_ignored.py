"""all-targets-ignored

## What it does
Reports a batch in which every target is the one that the loss ignores, and masks by hand that leave nothing of a loss.

## Why it hurts
The mean over nothing is NaN, or the step is wasted. It happens when truncation cuts off all answers and
only the masked prompt is left.

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
Batches in which some targets are ignored; a sum over the targets of a batch that has none, while other batches have
some; a mask of zeros beside other terms that train.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.records.finding import Finding

EXPLAINS = ("nonfinite-gradients", "constant-targets", "update-without-gradients")
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def _is_spoilt(loss: Loss) -> bool:
    """Is the mean over nothing, which is no number, back-propagated? A sum over nothing adds nothing."""
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
            remedy="drop samples without a target before batching, or truncate the prompt and not the answer",
        )
    elif loss_facts.emptied_lines and any(update.all_zero or update.nonfinite for update in loop_facts.updates):
        yield Finding(
            check="all-targets-ignored",
            severity="error",
            seen="a mask leaves nothing of the loss whenever it is used, and gradients are zero or NaN",
            where=loss_facts.emptied_lines[0],
            why="the mean over nothing is NaN, or the step is wasted",
            remedy="look at how the mask is made: where it is true, and of which numbers",
        )
