"""advantage-with-gradient

## What it does
Reports a difference, such as a return minus a value, that weighs log-probabilities and still carries a gradient.

## Why it hurts
The policy's loss then also trains the critic, and in the wrong direction: values move to make the loss small, not to
predict returns.

## Buggy
```python
loss = -(policy.log_prob(action) * (returns - value)).mean()
```

## Fixed
```python
loss = -(policy.log_prob(action) * (returns - value.detach())).mean()
```

## What looks like it and is fine
Gates and mixture weights, which are no differences; log-probabilities of samples that carry a gradient themselves.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("advantage"):
        yield Finding(
            check="advantage-with-gradient",
            severity="warning",
            seen=f"the advantage at this line weighs log-probabilities, and {term.fault}",
            where=term.where or "the recipe's loss",
            why="the loss of the policy pulls the critic away from the returns that it should predict",
            remedy="detach the advantage: (returns - value).detach()",
        )
