"""metric-worse-as-loss-falls

## What it does
Reports a metric of the same data as a loss that gets steadily and much worse while the loss steadily falls.

## Why it hurts
The two contradict each other, so one of them is wrong: the metric reads another axis, other classes or another split
than the loss, or one of them has the wrong sign. A model that is chosen by this metric is the worst one.

## Buggy
```python
loss = nn.functional.cross_entropy(model(x), y)
accuracy = (model(x).argmin(1) == y).float().mean()
```

## Fixed
```python
loss = nn.functional.cross_entropy(model(x), y)
accuracy = (model(x).argmax(1) == y).float().mean()
```

## What looks like it and is fine
Overfitting: the loss of the training data falls, and a metric of other data gets worse. Numbers that go up and down.
Rewards, precision and recall. Fewer than five values. A perplexity that is not the exponential of the loss: that of the
codes of a VQ-VAE is the better the higher it is.
"""

import math
from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.series import DISTANCES, HIGHER, LOSSES, Series, fall, trend
from surefoot.records.finding import Finding

_FEWEST = 5
_STEADY = 0.8
"""The least rank correlation with time."""
_LOSS_FALLS = 0.2
"""The share of its first values by which a loss falls."""
_DROP, _FACTOR = 0.1, 1.5
"""By how much a metric gets worse: a share by this difference, any other number by this factor."""
_SAME = 2.0
"""The largest factor between a first perplexity and the exponential of the loss that it is made from."""


def check(evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    series = [each for each in evaluation_facts.series if each.is_finite and each.moments >= _FEWEST]
    for loss in (each for each in series if each.kind in LOSSES):
        for metric in series:
            if (
                metric.training == loss.training
                and metric.kind not in ("loss", loss.kind)
                and _contradict(metric, loss)
            ):
                yield Finding(
                    check="metric-worse-as-loss-falls",
                    severity="warning",
                    seen=f"`{metric.name}` goes from {metric.shown(0)} to {metric.shown(-1)} while `{loss.name}` goes "
                    f"from {loss.shown(0)} to {loss.shown(-1)}",
                    where=metric.where,
                    why="they are of the same data and contradict each other: one of them reads another axis, other "
                    "classes or another split, or has the wrong sign",
                    remedy="compute both by hand for one batch, and compare their inputs",
                )
                return


def _contradict(metric: Series, loss: Series) -> bool:
    if metric.phase != loss.phase or not (metric.phase or metric.where == loss.where):
        return False
    first, last = max(metric.updates[0], loss.updates[0]), min(metric.updates[-1], loss.updates[-1])
    losses, numbers = loss.between(first, last), metric.between(first, last)
    if min(len(losses), len(numbers)) < _FEWEST:
        return False
    if metric.kind == "perplexity" and not _is_exponential(numbers[0], losses[0]):
        return False
    return fall(losses) > _LOSS_FALLS * abs(losses[0]) and trend(losses) <= -_STEADY and _worse(metric, numbers)


def _is_exponential(perplexity: float, loss: float) -> bool:
    return perplexity > 0 and abs(math.log(perplexity) - loss) <= math.log(_SAME)


def _worse(metric: Series, numbers: tuple[float, ...]) -> bool:
    """Is it steadily and much worse? If the part of the data is unknown, the metric has to lose more than half."""
    drop = fall(numbers) / (100 if metric.shares != metric.values else 1)
    if metric.kind in HIGHER:
        far = metric.phase or numbers[-1] <= numbers[0] / 2
        return bool(trend(numbers) <= -_STEADY and drop >= _DROP and far)
    if metric.kind in DISTANCES or metric.kind in ("error rate", "perplexity"):
        return bool(metric.phase and trend(numbers) >= _STEADY and 0 < _FACTOR * numbers[0] <= numbers[-1])
    return False
