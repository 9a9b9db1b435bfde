"""diverging-replicas

## What it does
Reports replicas of a model whose weights differ between ranks after an update.

## Why it hurts
Gradients were not exchanged: the model under the wrapper was called (`model.module(x)`), or weights were
changed on one rank. Every rank trains a model of its own, and one of them is saved.

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
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and ranks.diverged and ranks.last_unsynced <= 0.5:
        how = "; the model under DistributedDataParallel was called, and not the wrapper" if ranks.bypassed else ""
        yield Finding(
            check="diverging-replicas",
            severity="error",
            seen=f"after an update {len(ranks.diverged)} parameters differ between {ranks.count} ranks, such as "
            f"{ranks.diverged[0]}{how}",
            where=ranks.diverged[0],
            why="every rank trains a model of its own",
            remedy="call the wrapper and not model.module; do on all ranks what is done to weights or gradients",
        )
