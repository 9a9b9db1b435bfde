"""wrong-gaussian-likelihood

## What it does
Reports a squared error that is divided by a learned variance whose logarithm is missing, has the wrong sign, or the
wrong factor.

## Why it hurts
Without the logarithm nothing keeps the variance from growing: the loss falls without a better prediction. With a
wrong factor the stated variance is not that of the errors.

## Buggy
```python
loss = ((y - mean).pow(2) / log_variance.exp()).mean()
```

## Fixed
```python
loss = (log_variance + (y - mean).pow(2) / log_variance.exp()).mean()
```

## What looks like it and is fine
The same factor on both parts; a logarithm of the precision, which is subtracted; a learned variance that another term
of the loss also uses.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("spread"):
        yield Finding(
            check="wrong-gaussian-likelihood",
            severity="warning",
            seen=f"a squared error is divided by a learned variance: {term.fault}",
            where=term.where or "the recipe's loss",
            why="the variance that the model states is not the variance of its errors",
            remedy="use 0.5 * (log_variance + error**2 / log_variance.exp()), or F.gaussian_nll_loss",
        )
