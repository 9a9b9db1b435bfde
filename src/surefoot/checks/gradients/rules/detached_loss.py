"""detached-loss

## What it does
Reports losses whose graph reaches none of the optimizer's parameters.

## Why it hurts
The update that follows has no gradients to use: the weights do not change, or move by weight decay and momentum
alone. It happens when the loss is rebuilt from numbers (`torch.tensor(loss.item())`), or when the model's output was
detached, turned into NumPy, or computed under `no_grad`.

## Buggy
```python
loss = torch.tensor(criterion(model(x), y).item(), requires_grad=True)
loss.backward()
optimizer.step()
```

## Fixed
```python
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
```

## What looks like it and is fine
A backward into the inputs alone that no update follows, as for an adversarial example; two optimizers that take
turns.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import Backward, LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-gradients", "missing-update", "detached-layers", "loss-term-without-gradient")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    relevant = _before_all(loop_facts) or _before_starved(loop_facts)
    if relevant:
        first, times = relevant[0], f"in {len(relevant)} of {len(loop_facts.backwards)} backward calls"
        graph = "has a graph that does not reach" if first.differentiable else "has no graph, so it cannot reach"
        yield Finding(
            check="detached-loss",
            severity="error",
            seen=f"{times} the loss {graph} the parameters of the optimizer",
            where=first.where or "the recipe's loss",
            why="no gradient reaches the weights, so no update can learn from the loss",
            remedy="compute the loss from the model's output without .item(), .detach(), .data, NumPy or no_grad",
        )


def _before_all(loop_facts: LoopFacts) -> list[Backward]:
    """The backwards before updates, if no update has a gradient to use and no backward reaches an optimizer."""
    if any(update.with_gradient and update.all_zero is False for update in loop_facts.updates):
        return []  # updates get their gradients from elsewhere, for example from a transform
    relevant = [each for each in loop_facts.backwards if each.followed_by_update or not each.differentiable]
    return [] if any(each.reaches_optimized for each in relevant) else relevant


def _before_starved(loop_facts: LoopFacts) -> list[Backward]:
    """The backwards that reach no optimizer, if one of several optimizers never has a gradient to use."""
    for number in range(len(loop_facts.optimizers)):
        updates = [update for update in loop_facts.updates if update.optimizer == number]
        if len(updates) >= 2 and not any(update.with_gradient and update.all_zero is not True for update in updates):
            last = updates[-1].number
            lost = [each for each in loop_facts.backwards if each.update < last and not each.reaches_optimized]
            if len(lost) >= 2:
                return lost
    return []
