"""updates-rounded-away

## What it does
Reports half-precision weights that have a gradient but do not change: most of their elements, or whole tensors.

## Why it hurts
A bfloat16 has eight bits of fraction: an update smaller than 1/512 of a weight is rounded away. Training seems to
work, but most weights stand still, or those of the norms, which are near 1.

## Buggy
```python
model = model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
```

## Fixed
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
with torch.autocast(device, torch.bfloat16):
    loss = criterion(model(x), y)
```

## What looks like it and is fine
Half-precision weights with a large enough learning rate; optimizers that keep a float32 copy or use stochastic
rounding.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-effect",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    looked = [update for update in loop_facts.updates if update.half and update.rate]
    if len(looked) < 2:
        return
    still = sorted(frozenset.intersection(*(update.still for update in looked)))
    if all(update.lost_share > 0.5 for update in looked):
        seen = (
            f"{looked[0].lost_share:.0%} of the {looked[0].half} elements with a gradient did not change in an update"
        )
    elif still:
        seen = f"{len(still)} {looked[0].half} tensors with gradients did not change, for example {still[0]}"
    else:
        return
    yield Finding(
        check="updates-rounded-away",
        severity="warning",
        seen=seen,
        where=looked[0].where or "the recipe's precision",
        why="updates below the resolution of the weights are rounded away",
        remedy="keep weights in float32 and compute in half precision (bf16-mixed), or raise the learning rate",
    )
