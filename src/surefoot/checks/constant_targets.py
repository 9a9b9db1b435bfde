"""constant-targets

## What it does
Reports a classification in which every target of every batch seen is one and the same class.

## Why it hurts
Nothing is to be learned but a constant. The loss falls quickly, which looks like success.

## Buggy
```python
label = torch.zeros_like(label)
```

## Fixed
```python
label = batch["label"]
```

## What looks like it and is fine
The two halves of an adversarial game, each with a constant target; batches too small to hold two classes.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding

_JUDGED = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def check(evidence: Evidence) -> Iterator[Finding]:
    if any(each.sorted_labels for each in evidence.samples) or len([o for o in evidence.optimizers if o.updates]) > 1:
        return
    judged = [loss for loss in evidence.losses if loss.function in _JUDGED]
    batches = {loss.backward for loss in judged}
    constants = {loss.constant for loss in judged}
    if len(batches) >= 3 and len(constants) == 1 and None not in constants and all(loss.valid >= 4 for loss in judged):
        if sum(loss.valid for loss in judged) < 24:
            return
        yield Finding(
            check="constant-targets",
            severity="warning",
            seen=f"all {sum(each.valid for each in judged):,} targets of {len(judged)} losses are {judged[0].constant}",
            where=judged[0].where or "the recipe's data",
            why="there is nothing to learn but a constant",
            remedy="look at where the labels are read, cast or sliced",
        )
