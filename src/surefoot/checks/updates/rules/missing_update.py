"""missing-update

## What it does
Reports a loop that keeps back-propagating into an optimizer's parameters while neither that optimizer nor any other
updates them.

## Why it hurts
Gradients are computed and thrown away; the weights never move.

## Buggy
```python
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
```

## Fixed
```python
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
```

## What looks like it and is fine
Weights that are updated by hand; the gradient of an input; a loop without an optimizer; an optimizer that another one
has replaced.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.ranks import RankFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, rank_facts: RankFacts) -> Iterator[Finding]:
    for number, optimizer in enumerate(loop_facts.optimizers):
        reaching = [backward for backward in loop_facts.backwards if number in backward.idle]
        if len(reaching) >= 3 and not optimizer.updates and not _is_served(loop_facts, rank_facts, number):
            yield Finding(
                check="missing-update",
                severity="error",
                seen=f"{len(reaching)} backward calls reached parameters of {optimizer.kind}, but it made no update",
                where=reaching[-1].where or "the loop",
                why="gradients are computed and thrown away; the weights never move",
                remedy="call optimizer.step() after backward",
            )
            return


def _is_served(loop_facts: LoopFacts, rank_facts: RankFacts, number: int) -> bool:
    """Do weights move without this optimizer, or may it, or its part on another rank, still make an update?"""
    if not loop_facts.updates:
        return loop_facts.weights_by_hand
    return loop_facts.optimizers[number].moved or not loop_facts.ended or rank_facts.ranks is not None
