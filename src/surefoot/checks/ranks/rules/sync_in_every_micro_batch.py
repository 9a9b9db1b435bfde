"""sync-in-every-micro-batch

## What it does
Reports gradients that are exchanged between ranks in every micro-batch of an update.

## Why it hurts
DistributedDataParallel exchanges gradients in every backward. With eight micro-batches per update, seven of eight
exchanges are wasted.

## Buggy
```python
for x, y in micro_batches:
    criterion(model(x), y).backward()
optimizer.step()
```

## Fixed
```python
for x, y in micro_batches[:-1]:
    with model.no_sync():
        criterion(model(x), y).backward()
criterion(model(*micro_batches[-1][:1]), micro_batches[-1][1]).backward()
```

## What looks like it and is fine
One micro-batch per update; sharded gradients, which cannot wait. Gradients that are exchanged never, or too early, are
reported by `diverging-replicas`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and ranks.micro_batches >= 1.9 and ranks.syncs_per_update >= ranks.micro_batches - 0.1:
        yield Finding(
            check="sync-in-every-micro-batch",
            severity="warning",
            seen=f"gradients were exchanged {ranks.syncs_per_update:g} times in every update",
            where="DistributedDataParallel",
            why=f"{ranks.syncs_per_update - 1:g} of {ranks.syncs_per_update:g} exchanges are wasted",
            remedy="wrap all micro-batches but the last in model.no_sync()",
        )
