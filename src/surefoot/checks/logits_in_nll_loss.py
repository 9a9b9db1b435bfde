"""logits-in-nll-loss

## What it does
Reports an `nll_loss` whose input does not hold log-probabilities.

## Why it hurts
The loss only picks the target's entry. Of raw logits it can be made as negative as one likes by raising
them all, so the number falls without end and says nothing.

## Buggy
```python
loss = F.nll_loss(logits, target)
```

## Fixed
```python
loss = F.nll_loss(F.log_softmax(logits, dim=-1), target)
```

## What looks like it and is fine
Log-probabilities made in the model, by whatever means: what counts is that they sum to 1.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    raw = [
        loss
        for loss in evidence.losses
        if (loss.function == "nll_loss" and not loss.log_probabilities and loss.above != "Softmax")
        or (loss.function == "nll_loss" and loss.probabilities)
    ]
    if raw:
        kind = "probabilities" if raw[0].probabilities else "numbers that are no log-probabilities"
        yield Finding(
            check="logits-in-nll-loss",
            severity="error",
            seen=f"{len(raw)} calls of nll_loss were given {kind}",
            where=raw[0].where or "the recipe's loss",
            why="without normalisation the loss falls without end, and its gradient does not push other classes down",
            remedy="use cross_entropy on the logits, or log_softmax before nll_loss",
        )
