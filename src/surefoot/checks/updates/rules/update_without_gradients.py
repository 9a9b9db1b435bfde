"""update-without-gradients

## What it does
Reports updates that have no gradient to use: `step()` before `backward()`, without it, or after
`zero_grad()`.

## Why it hurts
The optimizer skips parameters without a gradient; zero gradients only apply decay and momentum. The loss is computed
and printed, but never learned from.

## Buggy
```python
loss.backward()
optimizer.zero_grad()
optimizer.step()
```

## Fixed
```python
optimizer.zero_grad()
loss.backward()
optimizer.step()
```

## What looks like it and is fine
Parameters that a batch does not touch; an update that a gradient scaler skips; an optimizer whose loss begins later
than the others; closures, which run their backward inside the update.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("update-without-effect", "clipping-without-effect", "missing-zero-grad", "zero-grad-between-micro-batches")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    for number, optimizer in enumerate(loop_facts.optimizers):
        updates = [update for update in loop_facts.updates if update.optimizer == number]
        if len(updates) < 2:
            continue
        empty = [update for update in updates if not update.with_gradient]
        zero = [update for update in updates if update.all_zero]
        late = [forward for forward in loop_facts.forwards if forward.late_backward]
        read = [update for update in updates if update.all_zero is not None or not update.with_gradient]
        begun = not zero and len(empty) < len(updates)  # only its first updates had none, as when an opponent waits
        if len(empty) + len(zero) == len(read) >= 2 and not begun:
            kind = "none of its parameters had a gradient" if empty else "every gradient was exactly zero"
            seen = f"in all {len(read)} updates of {optimizer.kind}, {kind}"
        elif len(loop_facts.optimizers) == 1 and len(late) >= 2 and len(late) >= len(loop_facts.forwards) - 1:
            seen = (
                f"{len(late)} of {len(loop_facts.forwards)} forward calls were back-propagated only after their update"
            )
        else:
            continue
        yield Finding(
            check="update-without-gradients",
            severity="error",
            seen=seen,
            where=updates[0].where or "the recipe's optimizer",
            why="the update cannot learn from the loss that was computed",
            remedy="call zero_grad, backward and step in this order",
        )
