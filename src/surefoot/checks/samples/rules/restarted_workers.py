"""restarted-workers

## What it does
Reports a loader that restarts its worker processes in every pass over the data.

## Why it hurts
Each start imports the program and opens the data set again: a GPU waits for seconds in every epoch.

## Buggy
```python
DataLoader(data, num_workers=4)
```

## Fixed
```python
DataLoader(data, num_workers=4, persistent_workers=True)
```

## What looks like it and is fine
One long pass; data sets that must be reopened in every epoch, whose workers read the number of the epoch when they
start.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

MANY_PASSES = 3


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for each in sample_facts.loaders:
        if each.workers and not each.keeps_workers and each.passes >= MANY_PASSES:
            yield Finding(
                check="restarted-workers",
                severity="info",
                seen=f"the loader of {each.kind} started {counted(each.workers, 'worker')} {each.passes} times",
                where=f"the loader of {each.kind}",
                why="the loop waits for the workers to start in every pass",
                remedy="pass persistent_workers=True",
            )
