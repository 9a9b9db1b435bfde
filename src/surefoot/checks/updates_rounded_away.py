"""updates-rounded-away

## What it does
Reports half-precision weights most of which do not change although they have a gradient.

## Why it hurts
A bfloat16 has eight bits of fraction: an update smaller than 1/512 of a weight is rounded away. Training
seems to work, and most of the weights stand still.

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

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    looked = [update for update in evidence.updates if update.half and update.rate]
    lost = [update for update in looked if update.lost_share > 0.5]
    if len(lost) >= 2 and len(lost) == len(looked):
        yield Finding(
            check="updates-rounded-away",
            severity="warning",
            seen=f"{lost[0].lost_share:.0%} of the {lost[0].half} elements with a gradient did not change in an update",
            where=lost[0].where or "the recipe's precision",
            why="updates below the resolution of the weights are rounded away",
            remedy="keep weights in float32 and compute in half precision (bf16-mixed), or raise the learning rate",
        )
