"""diverging-replicas

## What it does
Reports replicas of a model whose weights differ between ranks after an update, and gradients that are exchanged never,
or before the last micro-batch.

## Why it hurts
Gradients were not exchanged because the loop called the model inside the wrapper (`model.module(x)`) or ran every
backward inside `no_sync()`, or weights were changed on one rank only. Every rank trains its own model, and one of them
is saved.

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

from surefoot.checks.facts.ranks import RankFacts, Ranks
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = ("clipping-by-local-norm",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is None:
        return
    how, remedy = _cause(ranks)
    if ranks.diverged:
        differ = f"{counted(len(ranks.diverged), 'parameter')} had other values on another of {ranks.count} ranks"
        seen = f"after an update {differ}, for example {ranks.diverged[0]}" + (how and f"; {how}")
        yield _finding(seen, ranks.diverged[0], remedy)
    elif how and not ranks.bypassed and not ranks.compared:
        yield _finding(how, "DistributedDataParallel", remedy)


def _cause(ranks: Ranks) -> tuple[str, str]:
    """Why replicas differ, if it is known, and the remedy."""
    if ranks.bypassed:
        how = "the loop called the model inside DistributedDataParallel, not the wrapper"
        return how, "call the wrapper, not model.module"
    if ranks.never_synced:
        how = "no gradient was exchanged in any update, because every backward ran inside no_sync()"
        return how, "run the last micro-batch of every update outside no_sync()"
    if ranks.last_unsynced > 0.5:
        how = "gradients were exchanged, but not in the last micro-batch of an update"
        return how, "wrap all micro-batches but the last in model.no_sync()"
    return "", "call the wrapper, not model.module; change weights and gradients on all ranks alike"


def _finding(seen: str, where: str, remedy: str) -> Finding:
    why = "every rank trains its own model"
    return Finding(check="diverging-replicas", severity="error", seen=seen, where=where, why=why, remedy=remedy)
