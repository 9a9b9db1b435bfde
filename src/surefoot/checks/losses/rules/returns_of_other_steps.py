"""returns-of-other-steps

## What it does
Reports weights of log-probabilities that are sums of the rewards before each action, or that go on across the ends of
episodes. Rewards and ends are recognised by their values among the lists and arrays of the running functions.

## Why it hurts
An action cannot change what was before it. Such weights say nothing about the action, and the policy learns from
noise.

## Buggy
```python
total, returns = 0.0, []
for reward in rewards:
    total = reward + 0.99 * total
    returns.append(total)
```

## Fixed
```python
total, returns = 0.0, []
for reward in reversed(rewards):
    total = reward + 0.99 * total
    returns.insert(0, total)
```

## What looks like it and is fine
Returns that are normalised; weights that are no exact sums of rewards in sight, which are not examined.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("returns"):
        yield Finding(
            check="returns-of-other-steps",
            severity="warning",
            seen=f"log-probabilities are weighed by returns, but {term.fault}",
            where=term.where or "the recipe's loss",
            why="actions are judged by rewards that they could not change",
            remedy="sum rewards from the last step of an episode to its first",
        )
