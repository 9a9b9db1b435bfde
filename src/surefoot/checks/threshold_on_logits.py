"""threshold-on-logits

## What it does
Reports numbers that are compared with one half although they are logits: some lie below 0 or above 1, and the
loss is `binary_cross_entropy_with_logits`.

## Why it hurts
A logit of one half is a probability of 62%. The metric leaves out samples that the model is right about.

## Buggy
```python
guess = model(x) > 0.5
```

## Fixed
```python
guess = torch.sigmoid(model(x)) > 0.5
```

## What looks like it and is fine
A cut-off that was chosen on held-out data and happens to be one half.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    if not any(loss.function == "binary_cross_entropy_with_logits" for loss in evidence.losses):
        return
    for threshold in evidence.thresholds[:1]:
        yield Finding(
            check="threshold-on-logits",
            severity="info",
            seen=f"numbers between {threshold.lowest:.3g} and {threshold.highest:.3g} are compared with 0.5",
            where=threshold.where or "the loop",
            why="a logit of one half is a probability of 62%",
            remedy="compare torch.sigmoid(logits) with 0.5, or logits with 0",
        )
