"""loss-of-the-last-batch

## What it does
Reports an evaluation of several batches whose loop keeps a number of each and of which only the last is used.

## Why it hurts
It is printed as the loss of the whole evaluation and is that of a few samples: noisy, and the same few every
time.

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
A number that the loop adds up, keeps in a list or compares with the ones before.
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
                seen=f"of {metric.batches} batches that were evaluated, {metric.name} holds the last one's number",
                where=metric.where,
                why="what is shown as the quality of all is that of a few samples",
                remedy="add up over all batches, each by the number of its samples",
            )
            return
