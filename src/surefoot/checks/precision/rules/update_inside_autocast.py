"""update-inside-autocast

## What it does
Reports an autocast region that stays open from one update to the next.

## Why it hurts
Autocast caches its casts of weights until the region ends. After an update the forward still uses casts of the old
weights: the model that computes the loss never changes.

## Buggy
```python
with torch.autocast("cuda"):
    for x, y in loader:
        ...
        optimizer.step()
```

## Fixed
```python
for x, y in loader:
    with torch.autocast("cuda"):
        loss = criterion(model(x), y)
    ...
    optimizer.step()
```

## What looks like it and is fine
One region per step; `cache_enabled=False`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-effect",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    inside = [update for update in loop_facts.updates if update.in_autocast]
    if inside:
        yield Finding(
            check="update-inside-autocast",
            severity="error",
            seen=f"{len(inside)} of {len(loop_facts.updates)} updates ran in the same autocast region as "
            "the update before",
            where=inside[0].where or "the loop",
            why="cast weights are cached until the region ends, so the forward keeps using the old weights",
            remedy="open autocast around forward and loss only, once per step",
        )
