"""evaluation-samples-in-training

## What it does
Reports evaluation samples that are training samples, too.

## Why it hurts
What was learned by heart is counted as understood: the measured quality is too good.

## Buggy
```python
train, valid = Subset(data, range(0, 900)), Subset(data, range(800, 1000))
```

## Fixed
```python
train, valid = Subset(data, range(0, 900)), Subset(data, range(900, 1000))
```

## What looks like it and is fine
Measuring on the training set itself: the very data set that is trained on, or all of it beside samples that
are held out.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for samples in evidence.samples:
        if samples.shared_with_evaluation >= 0.01:
            yield Finding(
                check="evaluation-samples-in-training",
                severity="warning",
                seen=f"{samples.shared_with_evaluation:.0%} of the evaluation samples occur in training, too",
                where=samples.where,
                why="what was learned by heart is counted as understood",
                remedy="split once, by sample, before any duplication or augmentation",
            )
