"""scaled-before-split

## What it does
Reports an array that holds training and evaluation samples and was scaled as a whole: each column has exactly mean 0
and deviation 1, or exactly the range from 0 to 1, over all rows together.

## Why it hurts
The scale of the training samples contains the evaluation samples. The measured quality is a little too good, and much
too good if the series drifts.

## Buggy
```python
x = (x - x.mean(0)) / x.std(0)
train, test = x[:800], x[800:]
```

## Fixed
```python
train, test = x[:800], x[800:]
mean, deviation = train.mean(0), train.std(0)
train, test = (train - mean) / deviation, (test - mean) / deviation
```

## What looks like it and is fine
Measuring on the training set, which was scaled by itself; columns with few values; published statistics.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for scaled in sample_facts.scaled_together[:1]:
        yield Finding(
            check="scaled-before-split",
            severity="warning",
            seen=f"as a whole, {scaled.rows} rows have {scaled.how}; training took some of them, and "
            f"{scaled.evaluated} others were evaluated",
            where="the data",
            why="the scale of training samples was computed from evaluation samples as well",
            remedy="split first, then scale every part by the statistics of the training part",
        )
