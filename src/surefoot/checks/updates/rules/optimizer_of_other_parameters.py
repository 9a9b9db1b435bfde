"""optimizer-of-other-parameters

## What it does
Reports an optimizer that holds parameters which no model that runs has, and which no loss reaches, or none any more.

## Why it hurts
It was built before a layer was replaced, or from a model that was then copied, wrapped or sharded. It
updates tensors that nobody uses, while those in use stay as they are.

## Buggy
```python
optimizer = torch.optim.Adam(model.parameters())
model = copy.deepcopy(model)
```

## Fixed
```python
model = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters())
```

## What looks like it and is fine
Experts and branches that did not run: they are part of the model; a second optimizer whose turn has not
come.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts, Optimizing
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = (
    "detached-loss",
    "update-without-gradients",
    "parameter-outside-optimizer",
    "gradients-into-fixed-network",
    "missing-update",
    "clipping-without-effect",
)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""

_LOST = 3
"""So many updates in a row without any gradient, after others that had one."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    outside = any(each.trainable and each.reached and not each.optimized for each in model_facts.parameters)
    for number, optimizer in enumerate(loop_facts.optimizers):
        strangers = len(optimizer.foreign)
        graded = [update.with_gradient > 0 for update in loop_facts.updates if update.optimizer == number]
        lost = graded[::-1].index(True) if any(graded) else 0
        if outside and lost >= _LOST:
            yield _finding(optimizer, f"the last {lost} updates of {optimizer.kind} had no gradient to use any more")
        elif strangers and optimizer.updates and (outside or strangers == optimizer.parameters - optimizer.frozen):
            yield _finding(
                optimizer,
                f"{strangers} of {optimizer.parameters} parameters of {optimizer.kind} belong to no model that "
                f"ran, such as one of {optimizer.foreign[0]}",
            )


def _finding(optimizer: Optimizing, seen: str) -> Finding:
    return Finding(
        check="optimizer-of-other-parameters",
        severity="error",
        seen=seen,
        where=optimizer.kind,
        why="it updates tensors that nobody uses, while those in use stay as they are",
        remedy="build the optimizer last: after the model is changed, copied, wrapped or sharded",
    )
