"""wrong-similarity-logits

## What it does
Reports a square matrix of similarities in a cross-entropy that cannot tell candidates apart, or whose samples are
among their own candidates. Such a matrix is the product of two batches of vectors, and each row has its own target.

## Why it hurts
Cosines times a temperature of 0.07 are all nearly 0: the loss stays at the logarithm of the batch size. Vectors that
are not normalised win by length. A sample that is its own candidate always wins.

## Buggy
```python
logits = image @ text.t() * 0.07  # both normalised
loss = F.cross_entropy(logits, torch.arange(len(logits)))
```

## Fixed
```python
logits = image @ text.t() / 0.07  # both normalised
loss = F.cross_entropy(logits, torch.arange(len(logits)))
```

## What looks like it and is fine
Plain products without a temperature, as in retrieval; a learned scale above 1/2; a diagonal that is masked.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding

EXPLAINS = ("far-off-initial-loss",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("similarity"):
        yield Finding(
            check="wrong-similarity-logits",
            severity="warning",
            seen=f"the similarities in this cross-entropy are unfit: {term.fault}",
            where=term.where or "the recipe's loss",
            why="the loss cannot fall by making partners alike and others different",
            remedy="normalise both sides over their last dimension, divide by the temperature, and mask the diagonal",
        )
