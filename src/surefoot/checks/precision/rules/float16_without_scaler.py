"""float16-without-scaler

## What it does
Reports training in float16 without scaling the loss.

## Why it hurts
Gradients below 6e-8 become zero in float16. The layers far from the loss stop learning first.

## Buggy
```python
with torch.autocast("cuda", torch.float16):
    loss = criterion(model(x), y)
loss.backward()
```

## Fixed
```python
with torch.autocast("cuda", torch.float16):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
```

## What looks like it and is fine
bfloat16, which has the range of float32; a loss that is scaled by hand; float16 in evaluation.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(loop_facts: LoopFacts, loss_facts: LossFacts, precision_facts: PrecisionFacts) -> Iterator[Finding]:
    half = [each for each in loop_facts.forwards if each.float16 and each.trained and each.backpropagated]
    by_hand = any(abs(weight) >= 8 for loss in (*loss_facts.losses, *loss_facts.reductions) for weight in loss.weights)
    if half and precision_facts.scaling is None and not by_hand:
        yield Finding(
            check="float16-without-scaler",
            severity="error",
            seen=f"{counted(len(half), 'forward call')} that led to an update ran in float16, and no loss was scaled",
            where=half[0].model,
            why="small gradients become zero in float16, first in the layers far from the loss",
            remedy="use torch.amp.GradScaler, or bfloat16",
        )
