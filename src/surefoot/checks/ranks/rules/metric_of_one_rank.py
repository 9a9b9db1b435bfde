"""metric-of-one-rank

## What it does
Reports ranks that each evaluate their own samples and never combine the results.

## Why it hurts
The first rank prints the score of its own share: noisier than that of all, and over fewer samples the more ranks
there are.

## Buggy
```python
right = sum(count_right(model, batch) for batch in own_share)
print(right / len(own_share))
```

## Fixed
```python
counts = torch.tensor([right, len(own_share)])
dist.all_reduce(counts)
print(counts[0] / counts[1])
```

## What looks like it and is fine
All ranks evaluate all samples; one rank evaluates for all.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and ranks.untold_metrics:
        yield Finding(
            check="metric-of-one-rank",
            severity="warning",
            seen=f"each of {ranks.count} ranks evaluated its own samples, and no collective followed",
            where="the evaluation",
            why="the reported score is that of one rank's share",
            remedy="sum counts over ranks with dist.all_reduce before you divide them",
        )
