"""leftover-micro-batches

## What it does
Reports gradients that are left when a pass over the data ends in the middle of an accumulation.

## Why it hurts
The last micro-batches of every epoch are dropped, or leak into the first update of the next.

## Buggy
```python
if (number + 1) % 4 == 0:
    optimizer.step()
```

## Fixed
```python
if (number + 1) % 4 == 0 or number + 1 == len(loader):
    optimizer.step()
```

## What looks like it and is fine
A loader whose length divides; one that is iterated without end.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for loader in evidence.loaders:
        if loader.leftover:
            yield Finding(
                check="leftover-micro-batches",
                severity="warning",
                seen=f"a pass over {loader.batches} batches ended with the gradients of {loader.leftover} of "
                f"{loader.window} micro-batches unused",
                where=f"the loader of {loader.kind}",
                why="they are dropped, or leak into the first update of the next epoch",
                remedy="make an update at the end of a pass, too, or let the number of micro-batches divide its length",
            )
