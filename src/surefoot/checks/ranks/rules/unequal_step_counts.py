"""unequal-step-counts

## What it does
Reports ranks whose loaders have different numbers of batches.

## Why it hurts
The rank that ends first leaves the others waiting in an exchange that never completes.

## Buggy
```python
mine = files[rank::ranks]  # of different sizes
```

## Fixed
```python
steps = min_over_ranks(len(loader))
```

## What looks like it and is fine
`DistributedSampler`, which pads; streams without end; the `Join` context; ranks that all stop where the shortest ends.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and len(set(ranks.batch_counts)) > 1:
        yield Finding(
            check="unequal-step-counts",
            severity="error",
            seen=f"the loaders of {ranks.count} ranks have {', '.join(map(str, ranks.batch_counts))} batches",
            where="the training loader",
            why="the rank that ends first leaves the others waiting forever",
            remedy="split samples evenly with DistributedSampler, or stop all ranks at the smallest count",
        )
