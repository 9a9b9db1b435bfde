"""unsharded-data

## What it does
Reports ranks that read the same samples, in the same steps or during a pass.

## Why it hurts
Without a sampler that splits the samples, every rank trains on all of the data: eight GPUs do the work of one.

## Buggy
```python
loader = DataLoader(data, shuffle=True)  # on every rank, with one seed
```

## Fixed
```python
loader = DataLoader(data, sampler=DistributedSampler(data))
```

## What looks like it and is fine
Ranks that share a sample by tensor or pipeline parallelism; sampling with replacement; a little padding.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding

_PADDING = 0.1
"""Up to this share of a pass may be read twice, so that all ranks have the same number of batches."""


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is None:
        return
    if ranks.same_samples > 0.5:
        seen = f"{ranks.same_samples:.0%} of the samples of one rank were also seen by another of {ranks.count}"
    elif ranks.same_answers:
        seen = f"in every loss the {ranks.count} ranks had the same targets"
    elif ranks.same_places > _PADDING:
        seen = f"{ranks.same_places:.0%} of what one rank reads in a pass is also read by another of {ranks.count}"
    else:
        return
    yield Finding(
        check="unsharded-data",
        severity="error" if ranks.same_samples > 0.5 or ranks.same_answers else "warning",
        seen=seen,
        where="the training loader",
        why="the ranks do the same work",
        remedy="use DistributedSampler with the same seed on all ranks, or take samples[rank::ranks]",
    )
