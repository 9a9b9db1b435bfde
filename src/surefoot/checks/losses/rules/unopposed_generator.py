"""unopposed-generator

## What it does
Reports a generator and a discriminator that pull in the same direction, or a discriminator that is told the same of
made samples and of data. Directions are those of the gradient at the discriminator's output.

## Why it hurts
The generator learns to be recognised, and the discriminator has nothing to tell apart.

## Buggy
```python
loss = F.binary_cross_entropy_with_logits(judge(maker(z)), zeros)  # as in the judge's own step
```

## Fixed
```python
loss = F.binary_cross_entropy_with_logits(judge(maker(z)), ones)
```

## What looks like it and is fine
Labels that are swapped for both; losses whose direction differs between the samples of a batch; real and made samples
in one batch, which are not examined.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("opponents"):
        yield Finding(
            check="unopposed-generator",
            severity="warning",
            seen=term.fault,
            where=term.where or "the recipe's loss",
            why="there is no game between the two, so that made samples do not become like data",
            remedy="in the generator's step, give made samples the label of data",
        )
