"""target-among-inputs

## What it does
Reports a column of the inputs that is the target, is one-to-one with the classes, or is nearly a multiple of the
target. In windows of a series: a step that equals the target.

## Why it hurts
The model copies the answer. Its error is near zero until the first prediction for which the answer is not known.

## Buggy
```python
x, y = series[i : i + 24], series[i + 23]
```

## Fixed
```python
x, y = series[i : i + 24], series[i + 24]
```

## What looks like it and is fine
Targets that are all among the inputs, as for autoencoders and the next step of each step; a table of one or two
columns; several columns that tell the target.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for told in sample_facts.told_by[:1]:
        does = "equals the target" if told.how == "equals" else "tells the target without the other inputs"
        yield Finding(
            check="target-among-inputs",
            severity="warning",
            seen=f"{told.column} {does} in all {told.rows} samples",
            where=told.where or "the recipe's data",
            why="the model copies an answer that is unknown when it is used",
            remedy="remove the column, or take the target from after the window",
        )
