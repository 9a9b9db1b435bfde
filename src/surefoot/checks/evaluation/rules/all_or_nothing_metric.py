"""all-or-nothing-metric

## What it does
Reports a coverage that is exactly 0 or exactly 1 every time it is printed or logged, and an accuracy that is exactly 0
every time although the loss falls and guessing would be right now and then.

## Why it hurts
A number that never leaves its end measures nothing: the bounds of an interval are swapped or the same, or predictions
are compared with something that they can never equal.

## Buggy
```python
accuracy = (model(x).softmax(1) == y[:, None]).float().mean()
```

## Fixed
```python
accuracy = (model(x).argmax(1) == y).float().mean()
```

## What looks like it and is fine
An accuracy of 1 on data that is easy; an accuracy of 0 among many classes, or of whole sequences; fewer than three
values; values printed with fewer than two decimals.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.series import LOSSES, Series, fall
from surefoot.records.finding import Finding

_FEWEST, _FEWEST_DECIMALS, _MOST_CLASSES = 3, 2, 32
_FALLS = 0.3
"""The share of its first values by which the loss must fall."""


def check(evaluation_facts: EvaluationFacts, loss_facts: LossFacts) -> Iterator[Finding]:
    for each in evaluation_facts.series:
        values = set(each.shares)
        if each.moments < _FEWEST or max(each.decimals) < _FEWEST_DECIMALS or len(values) > 1:
            continue
        never = each.kind == "accuracy" and values == {0.0} and _is_learned(each, evaluation_facts, loss_facts)
        if (each.kind == "coverage" and values <= {0.0, 1.0}) or never:
            yield Finding(
                check="all-or-nothing-metric",
                severity="warning",
                seen=f"`{each.name}` is exactly {each.shown(0)} every time, {len(each.values)} times",
                where=each.where,
                why="guessing would be right now and then: what it compares can never be equal"
                if never
                else "it does not depend on the predictions, or the interval holds nothing or everything",
                remedy="print the shapes, types and a few values of both sides of the comparison",
            )
            return


def _is_learned(accuracy: Series, evaluation_facts: EvaluationFacts, loss_facts: LossFacts) -> bool:
    """Does a loss fall while it is 0, among so few classes that guessing is right now and then?"""
    classes = {each.classes for each in loss_facts.losses if each.weights} - {0}
    losses = [each for each in evaluation_facts.series if each.kind in LOSSES and each.training == accuracy.training]
    falling = any(
        each.moments >= _FEWEST and each.is_finite and fall(each.values) > _FALLS * abs(each.values[0])
        for each in losses
    )
    return falling and bool(classes) and max(classes) <= _MOST_CLASSES
