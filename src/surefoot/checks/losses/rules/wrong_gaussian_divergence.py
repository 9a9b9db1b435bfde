"""wrong-gaussian-divergence

## What it does
Reports a closed-form divergence of a Gaussian from the standard normal whose three parts, squared mean, variance and
log-variance, do not fit together. They are read from the graph of the loss, also through `exp`, `log`, `pow` and
products with numbers.

## Why it hurts
A divergence is never negative, and zero only for the standard normal. With a wrong sign or factor it has another
minimum, or none: the latent collapses, explodes, or learns a prior that nobody samples from.

## Buggy
```python
divergence = -0.5 * (1 + log_variance - mean.pow(2) - (0.5 * log_variance).exp()).sum(1).mean()
```

## Fixed
```python
divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
```

## What looks like it and is fine
Any factor of the whole divergence, as in a beta-VAE; a prior with another variance, unless that is 2 or 1/2; free
bits and capacities, which are not looked through.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("divergence"):
        yield Finding(
            check="wrong-gaussian-divergence",
            severity="warning",
            seen=f"the divergence of a Gaussian from N(0, 1) is none: {term.fault}",
            where=term.where or "the recipe's loss",
            why="its minimum is not the standard normal from which samples are drawn later",
            remedy="write -0.5 * (1 + log_variance - mean**2 - log_variance.exp()); sum over latents, average samples",
        )
