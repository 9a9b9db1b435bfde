"""held-out-number-never-changes

## What it does
Reports a loss or an error of held-out data that has exactly the same digits every time it is printed or logged, while
the loss of the training falls.

## Why it hurts
Training changes the weights, and with them every loss, if only in the last digit. A number that stays is computed from
other weights: of a copy that was made before the training, of outputs that were kept, or of a variable that is never
set again.

## Buggy
```python
best = copy.deepcopy(model)
for epoch in range(10):
    train_epoch(model)
    print(f"val loss {evaluate(best):.4f}")
```

## Fixed
```python
for epoch in range(10):
    train_epoch(model)
    print(f"val loss {evaluate(model):.4f}")
```

## What looks like it and is fine
Accuracies and other shares, which may stay for a while; numbers with fewer than three digits; fewer than four values;
a loss of 0; numbers of another name, for example `baseline loss`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.series import LOSSES, Series, fall
from surefoot.records.finding import Finding

_FEWEST, _FEWEST_DIGITS = 4, 3
_FALLS = 0.1
"""The share of its first values by which the loss of the training falls."""


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    series = evaluation_facts.series
    for held in series:
        measured = held.phase == "held out" and held.kind in {*LOSSES, "perplexity"}
        if measured and _stays(held) and any(_falls(each, held) for each in series):
            yield Finding(
                check="held-out-number-never-changes",
                severity="warning",
                seen=f"`{held.name}` is {held.shown(0)} all {len(held.values)} times, while the training goes on",
                where=held.where,
                why="it does not depend on the weights that are trained: it is computed from a copy, from outputs "
                "that were kept, or never computed again",
                remedy="compute it anew each time, with the model that is trained",
            )
            return


def _stays(held: Series) -> bool:
    value = abs(held.values[0])
    digits = len(f"{value:.{min(held.decimals[0], 16)}f}".replace(".", "").strip("0"))
    return held.moments >= _FEWEST and len(set(held.values)) == 1 and digits >= _FEWEST_DIGITS


def _falls(loss: Series, held: Series) -> bool:
    if loss.phase == "held out" or loss.kind not in LOSSES or loss.training != held.training or not loss.is_finite:
        return False
    values = loss.between(held.updates[0], held.updates[-1])
    return len(values) >= _FEWEST and fall(values) > _FALLS * abs(values[0])
