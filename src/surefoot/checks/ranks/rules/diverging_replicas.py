"""diverging-replicas

## What it does
Reports replicas of a model whose weights differ between ranks after an update.

## Why it hurts
Gradients were not exchanged because the loop called the model inside the wrapper (`model.module(x)`), or weights were
changed on one rank only. Every rank trains its own model, and one of them is saved.

## Buggy
```python
loss = criterion(model.module(x), y)
```

## Fixed
```python
loss = criterion(model(x), y)
```

## What looks like it and is fine
Adapters and experts that belong to one rank; local updates that are averaged later.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding

EXPLAINS = ("clipping-by-local-norm",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and ranks.diverged and ranks.last_unsynced <= 0.5:
        how = "; the loop called the model inside DistributedDataParallel, not the wrapper" if ranks.bypassed else ""
        yield Finding(
            check="diverging-replicas",
            severity="error",
            seen=f"after an update {len(ranks.diverged)} parameters differ between {ranks.count} ranks, for example "
            f"{ranks.diverged[0]}{how}",
            where=ranks.diverged[0],
            why="every rank trains its own model",
            remedy="call the wrapper, not model.module; change weights and gradients on all ranks alike",
        )
