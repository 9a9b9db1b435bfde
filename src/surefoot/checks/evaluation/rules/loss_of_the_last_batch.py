"""loss-of-the-last-batch

## What it does
Reports an evaluation of several batches that computes a number for each batch and uses only the last one.

## Why it hurts
The number looks like the loss of the whole evaluation, but it covers only a few samples: noisy, and the same few
every time.

## Buggy
```python
for x, y in validation:
    loss = criterion(model(x), y).item()
print(loss)
```

## Fixed
```python
total = sum(criterion(model(x), y).item() * len(x) for x, y in validation)
print(total / len(validation.dataset))
```

## What looks like it and is fine
A number that the loop adds up, keeps in a list or compares with earlier ones.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.records.finding import Finding


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    for metric in evaluation_facts.metrics:
        if metric.kind == "last":
            yield Finding(
                check="loss-of-the-last-batch",
                severity="info",
                seen=f"of {metric.batches} evaluated batches, {metric.name} holds the number of the last one only",
                where=metric.where,
                why="the score of a few samples is reported as that of all",
                remedy="sum over all batches, each weighted by its number of samples",
            )
            return
