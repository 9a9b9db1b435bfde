"""kl-div-mean-over-elements

## What it does
Reports `kl_div` with `reduction="mean"`, which is its default.

## Why it hurts
It divides by all elements instead of samples. The divergence, and its weight next to other losses, is smaller by the
number of classes. torch warns about this only once.

## Buggy
```python
F.kl_div(log_probabilities, target)
```

## Fixed
```python
F.kl_div(log_probabilities, target, reduction="batchmean")
```

## What looks like it and is fine
`reduction="sum"` or `"none"` with a division of your own.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    means = [
        loss
        for loss in loss_facts.losses
        if loss.function == "kl_div" and loss.reduction == "mean" and len(loss.shape) >= 2 and loss.weights
    ]
    if means:
        yield Finding(
            check="kl-div-mean-over-elements",
            severity="warning",
            seen=f"{counted(len(means), 'call')} of kl_div on {means[0].shape} took the mean over all elements",
            where=means[0].where or "the recipe's loss",
            why="the divergence of a sample is a sum over classes; this mean is smaller by their number",
            remedy='pass reduction="batchmean"',
        )
