"""sorted-training-data

## What it does
Reports a training loader that reads a data set in its order, where that is the order of its labels.

## Why it hurts
Batches hold one class each. The model learns to answer what came last, and forgets the rest.

## Buggy
```python
loader = DataLoader(data, batch_size=32)
```

## Fixed
```python
loader = DataLoader(data, batch_size=32, shuffle=True)
```

## What looks like it and is fine
A loader without shuffling over data that is mixed already; time series; evaluation.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for samples in evidence.samples:
        if samples.sorted_labels:
            yield Finding(
                check="sorted-training-data",
                severity="warning",
                seen=f"{samples.where} is read in order, and {samples.sorted_labels} classes come one after another",
                where=samples.where,
                why="batches hold one class each, and the model forgets what came before",
                remedy="pass shuffle=True",
            )
