"""unmasked-final-states

## What it does
Reports values that are trained towards a reward plus a discounted value, if the latter counts after the last state of
an episode, too, or only there. The last states are those that a variable named `done`, `terminated` or `terminal`
marks.

## Why it hurts
After the last state nothing follows. The value of a state that is never visited leaks into all states before it.

## Buggy
```python
target = reward + 0.99 * q(following).max(1).values
```

## Fixed
```python
target = reward + 0.99 * q(following).max(1).values * (1 - done)
```

## What looks like it and is fine
Episodes that were cut off by a time limit and go on: name the flag `truncated`, or allow this check.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    for term in loss_facts.broken("final states"):
        yield Finding(
            check="unmasked-final-states",
            severity="warning",
            seen=term.fault,
            where=term.where or "the recipe's loss",
            why="the value of states after the end of an episode enters the values of all states before it",
            remedy="multiply the next value by 1 - done",
        )
