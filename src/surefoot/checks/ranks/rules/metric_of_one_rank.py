"""metric-of-one-rank

## What it does
Reports ranks that evaluate samples of their own and never tell each other what came of it.

## Why it hurts
What the first rank prints is the score of its own share: noisier than that of all, and with more ranks on
fewer and fewer samples.

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
All ranks on all samples; one rank that evaluates for all.
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
            seen=f"each of {ranks.count} ranks evaluated samples of its own, and no collective followed",
            where="the evaluation",
            why="what is reported is the score of one rank's share",
            remedy="add up counts over ranks by dist.all_reduce before they are divided",
        )
