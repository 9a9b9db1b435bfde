"""probabilities-in-kl-div

## What it does
Reports a `kl_div` whose first argument does not hold log-probabilities, or whose second does not hold what
`log_target` says. Also reports a hand-written divergence that takes no logarithm of the prediction.

## Why it hurts
`kl_div(input, target)` takes the model's log-probabilities first. With probabilities, or with the arguments swapped,
its result is no divergence, and its gradient points elsewhere.

## Buggy
```python
loss = F.kl_div(student.softmax(-1), teacher.softmax(-1), reduction="batchmean")
```

## Fixed
```python
loss = F.kl_div(student.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")
```

## What looks like it and is fine
`log_target=True` with logarithms on both sides.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = ("kl-div-mean-over-elements", "nonfinite-gradients")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    wrong = [loss for loss in loss_facts.losses if loss.function == "kl_div" and not loss.log_probabilities]
    targets = [loss for loss in loss_facts.losses if loss.function == "kl_div" and loss.layout_fault]
    soft = [aim for aim in loss_facts.aims if aim.kind in ("weighed", "averaged")]
    by_hand = [aim for aim in soft if aim.sign > 0 and (aim.kind == "averaged" or aim.values != "log-probabilities")]
    if wrong:
        seen = f"{counted(len(wrong), 'call')} of kl_div received a first argument that holds no log-probabilities"
    elif targets:
        seen = f"{counted(len(targets), 'call')} of kl_div: {targets[0].layout_fault}"
    elif len(by_hand) >= 3 and by_hand == soft:
        seen = f"{len(by_hand)} gradients come from a divergence that takes no logarithm of the prediction"
    else:
        return
    yield Finding(
        check="probabilities-in-kl-div",
        severity="error" if wrong or targets else "warning",
        seen=seen,
        where=next((each.where for each in (*wrong, *targets)), by_hand[0].model if by_hand else "")
        or "the recipe's loss",
        why="the result is no divergence, and its gradient points elsewhere",
        remedy="pass log_softmax of the model's logits first, the target's probabilities second",
    )
