"""same-number-for-both-splits

## What it does
Reports a metric of the training data and one of held-out data that are equal to the digit every time both are printed
or logged, although they change.

## Why it hurts
Two different sets of samples do not give the same digits again and again. Both numbers are computed on the same
samples, so one of the two splits is never measured: overfitting stays unseen.

## Buggy
```python
train_loss, val_loss = evaluate(train_loader), evaluate(train_loader)
print(f"train loss {train_loss:.4f} val loss {val_loss:.4f}")
```

## Fixed
```python
train_loss, val_loss = evaluate(train_loader), evaluate(val_loader)
print(f"train loss {train_loss:.4f} val loss {val_loss:.4f}")
```

## What looks like it and is fine
Numbers that do not change, for example two accuracies of 1; numbers that are equal once or twice; numbers with fewer
than three decimals; a loss of one batch that is trained and measured on purpose, if only one number is printed.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.series import Series
from surefoot.records.finding import Finding

_FEWEST, _FEWEST_DECIMALS = 3, 3
_MORE = 2
"""A number of few samples takes few values: a share has to be equal so much more often."""


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    series = [each for each in evaluation_facts.series if each.is_finite and each.moments >= _FEWEST]
    for held in (each for each in series if each.phase == "held out"):
        for other in series:
            if _are_of_one_kind(held, other) and _are_equal(held, other):
                yield Finding(
                    check="same-number-for-both-splits",
                    severity="warning",
                    seen=f"`{other.name}` and `{held.name}` are equal to the digit all {len(held.values)} times, "
                    f"from {held.shown(0)} to {held.shown(-1)}",
                    where=held.where,
                    why="both are computed on the same samples: one of the two splits is never measured",
                    remedy="check which loader, array or variable each of the two is computed from",
                )
                return


def _are_of_one_kind(held: Series, other: Series) -> bool:
    if (held.kind, held.training, held.printed) != (other.kind, other.training, other.printed):
        return False
    return other.phase == "train" or (other.phase == "" and other.where == held.where)


def _are_equal(held: Series, other: Series) -> bool:
    """Are they equal at all times, and different from time to time?"""
    if (held.updates, held.values, held.decimals) != (other.updates, other.values, other.decimals):
        return False
    wanted = _FEWEST + _MORE * (min(held.values) >= 0 and max(held.values) <= 1)
    return min(held.decimals) >= _FEWEST_DECIMALS and min(len(set(held.values)), held.moments) >= wanted
