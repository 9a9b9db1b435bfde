"""missing-update

## What it does
Reports a loop that back-propagates again and again into what an optimizer holds, while neither that one nor any other
makes an update of it.

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
Weights that are moved by hand; the gradient of an input; a loop without an optimizer; an optimizer that another one
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
                seen=f"{len(reaching)} backwards reached what {optimizer.kind} holds, and it made no update",
                where=reaching[-1].where or "the loop",
                why="gradients are computed and thrown away; the weights never move",
                remedy="call optimizer.step() after backward",
            )
            return


def _is_served(loop_facts: LoopFacts, rank_facts: RankFacts, number: int) -> bool:
    """Do weights move without this optimizer, or may its turn still come, or that of another rank's part of it?"""
    if not loop_facts.updates:
        return loop_facts.weights_by_hand
    return loop_facts.optimizers[number].moved or not loop_facts.ended or rank_facts.ranks is not None
