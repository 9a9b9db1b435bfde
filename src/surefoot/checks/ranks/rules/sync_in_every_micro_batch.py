"""sync-in-every-micro-batch

## What it does
Reports gradients that are exchanged between ranks in every micro-batch, in other ones than the last, or never.

## Why it hurts
DistributedDataParallel exchanges gradients in every backward. With eight micro-batches per update, seven of eight
exchanges are wasted; with `no_sync` around all of them, nothing is exchanged.

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
One micro-batch per update; sharded gradients, which cannot wait.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is None:
        return
    if ranks.last_unsynced > 0.5:
        seen = "gradients were exchanged, but not in the last micro-batch of an update"
        why = "the gradients of the last one stay on their rank, so every rank trains its own model"
    elif ranks.never_synced:
        seen, why = "no gradient was exchanged in any update", "every rank trains its own model"
    elif ranks.micro_batches >= 1.9 and ranks.syncs_per_update >= ranks.micro_batches - 0.1:
        seen = f"gradients were exchanged {ranks.syncs_per_update:g} times in every update"
        why = f"{ranks.syncs_per_update - 1:g} of {ranks.syncs_per_update:g} exchanges are wasted"
    else:
        return
    yield Finding(
        check="sync-in-every-micro-batch",
        severity="error" if ranks.never_synced or ranks.last_unsynced > 0.5 else "warning",
        seen=seen,
        where="DistributedDataParallel",
        why=why,
        remedy="wrap all micro-batches but the last in model.no_sync()",
    )
