"""augmented-evaluation-data

## What it does
Reports evaluation on the same data set object as training, whose samples are random.

## Why it hurts
`random_split` shares one data set between both parts. The augmentation of training then applies to
evaluation, whose numbers are noisy and too low.

## Buggy
```python
train, valid = random_split(Images(augment=True), [0.9, 0.1])
```

## Fixed
```python
train = Subset(Images(augment=True), indices[:cut])
valid = Subset(Images(augment=False), indices[cut:])
```

## What looks like it and is fine
A shared data set without random numbers.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for samples in evidence.samples:
        if samples.random_in_evaluation:
            yield Finding(
                check="augmented-evaluation-data",
                severity="warning",
                seen=f"training and evaluation read one data set behind {samples.where}; an evaluation sample "
                "came out differently when it was read again",
                where=samples.where,
                why="the augmentation of training applies to evaluation",
                remedy="build two data sets, one with and one without augmentation, and split the indices",
            )
