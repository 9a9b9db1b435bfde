"""sigmoid-before-bce-with-logits

## What it does
Reports a sigmoid or softmax whose result is given to `binary_cross_entropy_with_logits`, to the like by hand, or to a
second sigmoid.

## Why it hurts
That loss applies a sigmoid itself. Applied twice, predictions stay between 0.5 and 0.73 and gradients
shrink.

## Buggy
```python
loss = F.binary_cross_entropy_with_logits(torch.sigmoid(logits), target)
```

## Fixed
```python
loss = F.binary_cross_entropy_with_logits(logits, target)
```

## What looks like it and is fine
A sigmoid before `binary_cross_entropy`, which expects one.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[Finding]:
    doubled = [
        loss
        for loss in loss_facts.losses
        if loss.function == "binary_cross_entropy_with_logits" and loss.above in ("Sigmoid", "Softmax")
    ]
    binary = [aim for aim in loss_facts.aims if aim.kind == "binary"]
    squeezed = [aim for aim in binary if aim.values == "shares" and not aim.apart]  # not by chance
    twice = [backward for backward in loop_facts.backwards if backward.double_sigmoid]
    if doubled:
        seen = f"{len(doubled)} calls were given the result of a {doubled[0].above.lower()}"
    elif len(twice) >= 3:
        seen = f"in {len(twice)} backwards the result of a sigmoid or softmax goes straight into a sigmoid"
    elif len(squeezed) >= 3 and squeezed == binary:
        seen = f"{len(squeezed)} gradients are those of a loss that takes numbers between 0 and 1 for logits"
    else:
        return
    yield Finding(
        check="sigmoid-before-bce-with-logits",
        severity="error",
        seen=seen,
        where=(doubled[0].where if doubled else twice[0].where if twice else squeezed[0].model) or "the recipe's loss",
        why="the sigmoid is applied twice: predictions stay between 0.5 and 0.73",
        remedy="give it the raw logits; apply sigmoid only where probabilities are read",
    )
