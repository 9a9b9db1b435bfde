"""missing-zero-grad

## What it does
Reports updates whose gradients still contain the gradients that the previous update had used.

## Why it hurts
`backward()` adds to `.grad`. Without `zero_grad()` every update applies the sum of all gradients since
training began. The loss still falls at first, so nothing looks broken; then it wanders or blows up.

## Buggy
```python
for batch, target in loader:
    loss = criterion(model(batch), target)
    loss.backward()
    optimizer.step()
```

## Fixed
```python
for batch, target in loader:
    optimizer.zero_grad()
    loss = criterion(model(batch), target)
    loss.backward()
    optimizer.step()
```

## What looks like it and is fine
Accumulating several backwards into one update; a GAN, where one loss fills gradients that the other
optimizer clears before its own backward; `p.grad = None` by hand.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.updates import UpdateFacts
from surefoot.records.finding import Finding

EXPLAINS = ("summed-micro-batches",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts, update_facts: UpdateFacts) -> Iterator[Finding]:
    stale = [update for update in loop_facts.updates if update.carried]
    if update_facts.carried_by_hand >= 3:
        yield Finding(
            check="missing-zero-grad",
            severity="error",
            seen=f"{update_facts.carried_by_hand} times, backward added to gradients that had already moved their "
            "weights",
            where=loop_facts.backwards[0].where or "the loop",
            why="every step applies the sum of all gradients since training began",
            remedy="set p.grad = None after the weights have moved",
        )
    elif stale:
        first = stale[0]
        yield Finding(
            check="missing-zero-grad",
            severity="error",
            seen=(
                f"in {len(stale)} of {len(loop_facts.updates)} updates, gradients still held what an earlier "
                f"update had used; first in update {first.number}: {len(first.carried)} of {first.parameters} "
                f"parameters, for example {first.carried[0]}"
            ),
            where=first.where or "the loop",
            why="every update applies the sum of all gradients since training began",
            remedy="call optimizer.zero_grad() once per update, before the first backward",
        )
