"""sigmoid-before-bce-with-logits

## What it does
Reports a sigmoid or softmax whose output goes into `binary_cross_entropy_with_logits`, a hand-written equivalent, or
a second sigmoid.

## Why it hurts
That loss applies a sigmoid itself. With two sigmoids, predictions stay between 0.5 and 0.73 and gradients shrink.

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
from surefoot.units import counted


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
        seen = f"{counted(len(doubled), 'call')} received the output of a {doubled[0].above.lower()}"
    elif len(twice) >= 3:
        seen = f"in {len(twice)} backward calls the output of a sigmoid or softmax goes straight into a sigmoid"
    elif len(squeezed) >= 3 and squeezed == binary:
        seen = f"{len(squeezed)} gradients come from a loss that treats numbers between 0 and 1 as logits"
    else:
        return
    yield Finding(
        check="sigmoid-before-bce-with-logits",
        severity="error",
        seen=seen,
        where=(doubled[0].where if doubled else twice[0].where if len(twice) >= 3 else squeezed[0].model)
        or "the recipe's loss",
        why="the sigmoid is applied twice: predictions stay between 0.5 and 0.73",
        remedy="pass the raw logits; apply sigmoid only where you need probabilities",
    )
