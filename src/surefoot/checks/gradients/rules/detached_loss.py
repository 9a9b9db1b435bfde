"""detached-loss

## What it does
Reports losses whose graph reaches none of the parameters that an optimizer holds.

## Why it hurts
The update that follows has no gradients to use: the weights stay as they are, or move by weight decay
and momentum alone. It happens when the loss is rebuilt from numbers (`torch.tensor(loss.item())`), or
when the model's output was detached, turned into NumPy, or computed under `no_grad`.

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
A backward into the inputs alone, such as for an adversarial example, which no update follows; two
optimizers that take turns.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import Backward, LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-gradients", "missing-update", "detached-layers", "loss-term-without-gradient")
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    relevant = _before_all(loop_facts) or _before_starved(loop_facts)
    if relevant:
        first, times = relevant[0], f"in {len(relevant)} of {len(loop_facts.backwards)} backwards"
        graph = "has a graph that ends before" if first.differentiable else "has no graph behind it and reaches none of"
        yield Finding(
            check="detached-loss",
            severity="error",
            seen=f"{times} the loss {graph} the parameters of the optimizer",
            where=first.where or "the recipe's loss",
            why="no gradient reaches the weights, so no update can learn from the loss",
            remedy="compute the loss from the model's output without .item(), .detach(), .data, NumPy or no_grad",
        )


def _before_all(loop_facts: LoopFacts) -> list[Backward]:
    """The backwards that updates follow, where no update has anything to use and none of them reaches an optimizer."""
    if any(update.with_gradient and update.all_zero is False for update in loop_facts.updates):
        return []  # the gradients that updates use come from elsewhere, as from a transform
    relevant = [each for each in loop_facts.backwards if each.followed_by_update or not each.differentiable]
    return [] if any(each.reaches_optimized for each in relevant) else relevant


def _before_starved(loop_facts: LoopFacts) -> list[Backward]:
    """The backwards that reach no optimizer, before updates of one of several that never has anything to use."""
    for number in range(len(loop_facts.optimizers)):
        updates = [update for update in loop_facts.updates if update.optimizer == number]
        if len(updates) >= 2 and not any(update.with_gradient and update.all_zero is not True for update in updates):
            last = updates[-1].number
            lost = [each for each in loop_facts.backwards if each.update < last and not each.reaches_optimized]
            if len(lost) >= 2:
                return lost
    return []
