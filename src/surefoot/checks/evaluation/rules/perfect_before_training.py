"""perfect-before-training

## What it does
Reports an accuracy, F1, AUC, IoU or another metric that is exactly at its best before the first update, as the script
prints or logs it.

## Why it hurts
A model with random weights cannot be right about everything. The metric reads something else than the predictions: the
targets are compared with themselves or are all the same, or the data hold the answer.

## Buggy
```python
predicted = model(x).argmax(1)
accuracy = (y == y).float().mean()
```

## Fixed
```python
predicted = model(x).argmax(1)
accuracy = (predicted == y).float().mean()
```

## What looks like it and is fine
Weights that were loaded or are pretrained; numbers of another name, for example `oracle accuracy` and `best accuracy`;
recall and coverage, which are 1 if everything is predicted; a metric printed before the model has run.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.series import HIGHER
from surefoot.records.finding import Finding

_FEWEST_UPDATES = 5
_FEWEST_DECIMALS = 2


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    series = evaluation_facts.series
    if max((each.updates[-1] for each in series), default=0) < _FEWEST_UPDATES:
        return
    for each in series:
        best = {"error rate": 0.0}.get(each.kind, 1.0 if each.kind in HIGHER else None)
        first = slice(0, each.untrained)
        exact = max(each.decimals) >= _FEWEST_DECIMALS
        if best is not None and exact and {*each.shares[first]} == {best}:
            yield Finding(
                check="perfect-before-training",
                severity="warning",
                seen=f"`{each.name}` is {each.shown(0)} before the first update, of a model with random weights",
                where=each.where,
                why="random weights cannot be right about everything: the metric does not read the predictions, or "
                "the data hold the answer",
                remedy="print a few predictions beside their targets, and count how many different targets there are",
            )
            return
