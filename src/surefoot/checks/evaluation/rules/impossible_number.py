"""impossible-number

## What it does
Reports a number that cannot be what its name says: a cross entropy, a CTC loss or a mean squared error below 0, a
perplexity below 1, an R2, AUC or correlation above 1, an accuracy above 100%.

## Why it hurts
What is printed, and often what is minimised, is another quantity. A likelihood loss falls below 0 only if what it is
given are not probabilities: nothing then stops it from falling on while the predictions get worse.

## Buggy
```python
loss = nn.functional.ctc_loss(logits.log_softmax(0), targets, input_lengths, target_lengths)  # over time
```

## Fixed
```python
loss = nn.functional.ctc_loss(logits.log_softmax(2), targets, input_lengths, target_lengths)
```

## What looks like it and is fine
The likelihood of continuous values, which has no bound: `nll` may be negative; a loss with other terms, as an entropy
that is subtracted; percent without a sign; numbers of another name, for example `negative mse`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.series import DISTANCES, SHARES, Series
from surefoot.records.finding import Finding
from surefoot.units import counted

_ROUNDING = 1e-3
_LOWEST = {
    **dict.fromkeys((*SHARES, *DISTANCES, "bce", "cross entropy", "ctc", "precision", "recall"), 0.0),
    "perplexity": 1.0,
    "correlation": -1.0,
}
_HIGHEST = {"auc": 1.0, "correlation": 1.0, "dice": 1.0, "iou": 1.0, "r2": 1.0}
_PERCENT = 2.0
"""Numbers above this may be percent."""
_WORDS = {"bce": "binary cross entropy", "ctc": "CTC loss", "iou": "IoU"}
_SHORT = frozenset({"auc", "f1", "mae", "mape", "mrr", "mse", "ndcg", "r2", "rmse"})
_SPELLED_AS_VOWELS = "aeiouAFIMNR"
"""An F1, an MSE, an RMSE; but a CTC loss."""


def check(evaluation_facts: EvaluationFacts, loss_facts: LossFacts) -> Iterator[Finding]:
    weighed = {each.function for each in loss_facts.losses if each.weights}
    for each in evaluation_facts.series:
        kind = "ctc" if each.kind == "loss" and weighed == {"ctc_loss"} else each.kind
        found = _beyond(each, kind)
        if found is not None:
            number, bound = found
            shown = f"`{each.name}` is {each.shown(number)} after {counted(each.updates[number], 'update')}"
            yield _finding(f"{shown}; {_called(kind)} is never {bound}", each.where)
            return
    for loss in loss_facts.losses:
        wrong = loss.layout_fault or loss.value is None  # the cause is said by ctc-input-not-log-probabilities
        if loss.function == "ctc_loss" and not wrong and (loss.value or 0.0) < -_ROUNDING:
            yield _finding(
                f"ctc_loss returned {loss.value:.3g}; a CTC loss is never below 0", loss.where or "the recipe's loss"
            )
            return


def _called(kind: str) -> str:
    """The kind with its article."""
    words = _WORDS.get(kind, kind.upper() if kind in _SHORT else kind)
    return f"{'an' if words[0] in _SPELLED_AS_VOWELS else 'a'} {words}"


def _beyond(series: Series, kind: str) -> tuple[int, str] | None:
    """Which of its numbers lies beyond a bound, and which bound."""
    lowest, highest = _LOWEST.get(kind), _HIGHEST.get(kind)
    largest = max(series.values)
    if kind in SHARES and largest > _PERCENT:
        highest = 100.0 if series.decimals[series.values.index(largest)] else None  # whole numbers may be counts
    elif largest > _PERCENT:
        highest = None
    for number, value in enumerate(series.values):
        if lowest is not None and value < lowest - _ROUNDING:
            return number, f"below {lowest:.0f}"
        if highest is not None and value > highest + _ROUNDING * highest:
            return number, f"above {highest:.0f}"
    return None


def _finding(seen: str, where: str) -> Finding:
    return Finding(
        check="impossible-number",
        severity="warning",
        seen=seen,
        where=where,
        why="the number is not what its name says: what it is computed from are no probabilities, or its sign, its "
        "sum or its count is wrong",
        remedy="check what goes in: log_softmax over the classes, not over time or samples; sums divided by what they "
        "sum over; the sign",
    )
