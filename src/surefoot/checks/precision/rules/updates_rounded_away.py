"""updates-rounded-away

## What it does
Reports half-precision weights most of which, or whole tensors of which, do not change although they have a gradient.

## Why it hurts
A bfloat16 has eight bits of fraction: an update smaller than 1/512 of a weight is rounded away. Training
seems to work, and most of the weights stand still, or those of the norms, which are near 1.

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
Half-precision weights with a rate that is large enough; optimizers that keep a float32 copy or round at
random.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-effect",)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


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
        seen = f"{len(still)} {looked[0].half} tensors with gradients stand still, such as {still[0]}"
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
