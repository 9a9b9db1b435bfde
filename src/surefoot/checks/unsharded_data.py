"""unsharded-data

## What it does
Reports ranks that read the same samples.

## Why it hurts
Without a sampler that shares samples out, every rank trains on all of the data: eight GPUs do the work of
one.

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

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    ranks = evidence.ranks
    if ranks is not None and ranks.same_samples > 0.5:
        yield Finding(
            check="unsharded-data",
            severity="error",
            seen=f"{ranks.same_samples:.0%} of the samples of one rank were seen by another of {ranks.count}, too",
            where="the training loader",
            why="the ranks do the same work",
            remedy="use DistributedSampler, or take samples[rank::ranks]",
        )
