"""shards-lost-in-saving

## What it does
Reports ranks that write to the same file, and shards that only one rank saves.

## Why it hurts
A rank of a sharded model holds a part of each tensor. If rank 0 alone calls `torch.save`, the other parts are lost;
if all ranks write one file, the last one wins, or the file is corrupted.

## Buggy
```python
if rank == 0:
    torch.save(model.state_dict(), "model.pt")  # a model under fully_shard
```

## Fixed
```python
torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id="model")
```

## What looks like it and is fine
A file for each rank, named after it; replicas of a whole model that rank 0 saves.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    for each in rank_facts.shared_files:
        several = f"{each.writers} of {each.ranks} ranks write {each.path}"
        yield Finding(
            check="shards-lost-in-saving",
            severity="error" if each.shards else "warning",
            seen=several if each.writers > 1 else f"{each.path} holds the shards of 1 of {each.ranks} ranks",
            where=each.where,
            why="the shards of the other ranks are lost" if each.shards else "the file can be corrupted",
            remedy="use torch.distributed.checkpoint.save, or get_model_state_dict with full_state_dict=True"
            if each.shards
            else "let only one rank write",
        )
