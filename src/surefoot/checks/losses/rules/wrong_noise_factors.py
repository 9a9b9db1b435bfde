"""wrong-noise-factors

## What it does
Reports samples that are mixed with noise in wrong shares, if the noise is the target of the loss. The squares of both
factors must add up to 1, or the sample keep its factor of 1; at the last step the noise must dominate.

## Why it hurts
A diffusion model starts from pure noise when it generates. If training never showed it any, or noise of another size,
it generates nothing.

## Buggy
```python
noisy = bar[t].sqrt() * x + (1 - bar[t]) * noise
```

## Fixed
```python
noisy = bar[t].sqrt() * x + (1 - bar[t]).sqrt() * noise
```

## What looks like it and is fine
Straight paths between sample and noise, as in flow matching; noise that is added to a sample as it is.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("noise"):
        yield Finding(
            check="wrong-noise-factors",
            severity="warning",
            seen=f"samples are mixed with noise in wrong shares: {term.fault}",
            where=term.where or "the recipe's loss",
            why="when the model generates, it meets noise of a size that training never showed",
            remedy="use sqrt(bar) for the sample and sqrt(1 - bar) for the noise; bar is the product of all 1 - beta",
        )
