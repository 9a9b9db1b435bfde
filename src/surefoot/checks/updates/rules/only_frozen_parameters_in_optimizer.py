"""only-frozen-parameters-in-optimizer

## What it does
Reports an optimizer whose parameters are all frozen, for the whole run or for a good part of it in which no other
optimizer makes updates.

## Why it hurts
Freezing hit the wrong parameters, or came after the optimizer was built. Gradients go elsewhere, and no
update changes anything.

## Buggy
```python
model.head.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
```

## Fixed
```python
model.body.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
```

## What looks like it and is fine
An optimizer that holds a whole model of which a part is frozen; one of two whose turn has not come.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("detached-loss", "update-without-gradients", "parameter-outside-optimizer", "adapters-never-move")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    for number, optimizer in enumerate(loop_facts.optimizers):
        wholly = optimizer.updates and optimizer.parameters and optimizer.frozen == optimizer.parameters
        idle = _idle_updates(loop_facts, number)
        if wholly or idle:
            when = "" if wholly else f" in the first {idle} updates"
            yield Finding(
                check="only-frozen-parameters-in-optimizer",
                severity="error",
                seen=f"all {optimizer.parameters} parameters of {optimizer.kind} have requires_grad=False{when}",
                where=optimizer.kind,
                why="no update changes anything",
                remedy="give the optimizer the parameters that you want to train, and freeze the others",
            )


def _idle_updates(loop_facts: LoopFacts, number: int) -> int:
    """How many first updates of an optimizer had everything frozen; 0 if less than a third of its updates."""
    own = [update for update in loop_facts.updates if update.optimizer == number]
    idle = next((place for place, update in enumerate(own) if not update.frozen), len(own))
    if idle < 3 or 3 * idle < len(own):
        return 0
    others = [update for update in loop_facts.updates if own[0].number < update.number < own[idle - 1].number]
    return idle if all(update.optimizer == number for update in others) else 0
