"""scaler-with-bfloat16

## What it does
Reports a gradient scaler that is enabled while the forward computes in bfloat16.

## Why it hurts
bfloat16 has the range of float32, so there is nothing to scale. The scaler adds a pass over the gradients and skips
updates whenever its scale is too high.

## Buggy
```python
scaler = torch.amp.GradScaler()
with torch.autocast("cuda", torch.bfloat16):
    ...
```

## Fixed
```python
with torch.autocast("cuda", torch.bfloat16):
    ...
```

## What looks like it and is fine
A scaler built with `enabled=False`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding


def check(precision_facts: PrecisionFacts) -> Iterator[Finding]:
    if precision_facts.scaling is not None and precision_facts.scaling.with_bfloat16:
        yield Finding(
            check="scaler-with-bfloat16",
            severity="warning",
            seen=f"a scaler scaled {precision_facts.scaling.attempts} updates of a model that computes in bfloat16",
            where="the gradient scaler",
            why="there is nothing to scale: the scaler costs a pass over the gradients, and the updates it skips",
            remedy="remove the scaler, or build it with enabled=False",
        )
