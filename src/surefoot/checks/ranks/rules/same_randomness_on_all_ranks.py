"""same-randomness-on-all-ranks

## What it does
Reports ranks that draw the same random numbers in their forwards.

## Why it hurts
With one seed on all ranks, every rank drops the same units and adds the same noise, so the average over ranks
averages less.

## Buggy
```python
torch.manual_seed(0)
```

## Fixed
```python
torch.manual_seed(rank)  # after the model is built
```

## What looks like it and is fine
Models without dropout; ranks that share a tensor.
"""

from collections.abc import Iterator

from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(rank_facts: RankFacts) -> Iterator[Finding]:
    ranks = rank_facts.ranks
    if ranks is not None and ranks.same_randomness:
        yield Finding(
            check="same-randomness-on-all-ranks",
            severity="warning",
            seen=f"{ranks.count} ranks started a forward that draws random numbers from the same random state",
            where="the random seed",
            why="every rank drops the same units",
            remedy="call torch.manual_seed(rank) after the model is built",
        )
