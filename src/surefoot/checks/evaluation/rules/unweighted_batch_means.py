"""unweighted-batch-means

## What it does
Reports an evaluation that averages the means of batches of different sizes.

## Why it hurts
Samples of a small last batch count more than others. The number changes with the batch size, so you cannot compare
two runs with different ones.

## Buggy
```python
losses = [criterion(model(x), y).item() for x, y in validation]
print(sum(losses) / len(losses))
```

## Fixed
```python
total = sum(criterion(model(x), y).item() * len(x) for x, y in validation)
print(total / len(validation.dataset))
```

## What looks like it and is fine
Batches of one size; means that are multiplied by the number of samples before they are added.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.records.finding import Finding


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    for metric in evaluation_facts.metrics:
        if metric.kind == "mean":
            yield Finding(
                check="unweighted-batch-means",
                severity="info",
                seen=f"{metric.name or 'a sum'} adds up the means of {metric.batches} batches of different sizes "
                "with equal weight",
                where=metric.where,
                why="samples of small batches count more than others",
                remedy="sum over samples, and divide by their number",
            )
            return
