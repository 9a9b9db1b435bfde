"""bootstrapped-target-with-gradient

## What it does
Reports a value that is compared with a reward plus a discounted value, if a gradient flows into the latter.

## Why it hurts
The target moves towards the prediction as much as the prediction towards the target. Q-learning then converges slowly
or to something else.

## Buggy
```python
loss = F.mse_loss(q(state).gather(1, action), reward + 0.99 * q(following).max(1, True).values)
```

## Fixed
```python
with torch.no_grad():
    wanted = reward + 0.99 * q(following).max(1, True).values
loss = F.mse_loss(q(state).gather(1, action), wanted)
```

## What looks like it and is fine
Residuals of equations, which choose among no actions; targets of a network that no optimizer holds have their own
check.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding

EXPLAINS = ("gradients-into-fixed-network",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("bootstrap"):
        yield Finding(
            check="bootstrapped-target-with-gradient",
            severity="warning",
            seen=f"a value is trained towards a reward plus a discounted value, and {term.fault}",
            where=term.where or "the recipe's loss",
            why="the target follows the prediction that it should guide",
            remedy="compute the target under torch.no_grad()",
        )
