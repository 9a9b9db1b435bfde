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

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    if any(update.with_gradient and update.all_zero is False for update in evidence.updates):
        return  # the gradients that updates use come from elsewhere, as from a transform
    relevant = [each for each in evidence.backwards if each.followed_by_update or not each.differentiable]
    if relevant and not any(each.reaches_optimized for each in relevant):
        first = relevant[0]
        graph = "has a graph that ends before" if first.differentiable else "has no graph behind it and reaches none of"
        yield Finding(
            check="detached-loss",
            severity="error",
            seen=f"in every backward ({len(relevant)} seen) the loss {graph} the parameters of the optimizer",
            where=first.where or "the recipe's loss",
            why="no gradient reaches the weights, so no update can learn from the loss",
            remedy="compute the loss from the model's output without .item(), .detach(), .data, NumPy or no_grad",
        )
