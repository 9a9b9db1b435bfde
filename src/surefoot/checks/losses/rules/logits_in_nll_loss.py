"""logits-in-nll-loss

## What it does
Reports an `nll_loss` whose input does not hold log-probabilities, and a hand-written loss that does the same.

## Why it hurts
The loss only picks the target's entry. Raising all raw logits makes it as negative as you like, so the number falls
without end and says nothing.

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

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_NO_LOGARITHMS = {"numbers": "numbers that are not log-probabilities", "plain probabilities": "probabilities"}


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    raw = [
        loss
        for loss in loss_facts.losses
        if (loss.function == "nll_loss" and not loss.log_probabilities and loss.above != "Softmax")
        or (loss.function == "nll_loss" and loss.probabilities)
    ]
    picked = [aim for aim in loss_facts.aims if aim.kind == "picked" and aim.values in _NO_LOGARITHMS]
    by_hand = [aim for aim in picked if aim.even and aim.sign > 0]
    if raw:
        kind = "probabilities" if raw[0].probabilities else "numbers that are not log-probabilities"
        seen, where = f"{counted(len(raw), 'call')} of nll_loss received {kind}", raw[0].where
    elif len(by_hand) >= 3 and by_hand == picked and not _has_distance(loss_facts):
        kind = _NO_LOGARITHMS[by_hand[0].values]
        seen, where = f"{len(by_hand)} gradients only raise the target's entry of {kind}", by_hand[0].model
    else:
        return
    yield Finding(
        check="logits-in-nll-loss",
        severity="error" if raw else "warning",
        seen=seen,
        where=where or "the recipe's loss",
        why="without normalisation the loss falls without end, and its gradient does not push other classes down",
        remedy="use cross_entropy on the logits, or log_softmax before nll_loss",
    )


def _has_distance(loss_facts: LossFacts) -> bool:
    """Is the picked entry compared with a number, like the value of an action?"""
    return any(loss.function in ("smooth_l1_loss", "huber_loss", "l1_loss", "mse_loss") for loss in loss_facts.losses)
