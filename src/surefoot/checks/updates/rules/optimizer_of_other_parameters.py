"""optimizer-of-other-parameters

## What it does
Reports an optimizer whose parameters belong to no model that runs and are reached by no loss, or no longer.

## Why it hurts
It was built before a layer was replaced, or from a model that was then copied, wrapped or sharded. It updates tensors
that nobody uses, while those in use do not change.

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
Experts and branches that did not run, which are part of the model; a second optimizer whose turn has not come.
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
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_LOST = 3
"""At least this many updates in a row without any gradient, after others that had one."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    outside = any(each.trainable and each.reached and not each.optimized for each in model_facts.parameters)
    for number, optimizer in enumerate(loop_facts.optimizers):
        strangers = len(optimizer.foreign)
        graded = [update.with_gradient > 0 for update in loop_facts.updates if update.optimizer == number]
        lost = graded[::-1].index(True) if any(graded) else 0
        if outside and lost >= _LOST:
            yield _finding(optimizer, f"the last {lost} updates of {optimizer.kind} no longer had a gradient to use")
        elif strangers and optimizer.updates and (outside or strangers == optimizer.parameters - optimizer.frozen):
            yield _finding(
                optimizer,
                f"{strangers} of {optimizer.parameters} parameters of {optimizer.kind} belong to no model that "
                f"ran, for example one of {optimizer.foreign[0]}",
            )


def _finding(optimizer: Optimizing, seen: str) -> Finding:
    return Finding(
        check="optimizer-of-other-parameters",
        severity="error",
        seen=seen,
        where=optimizer.kind,
        why="it updates tensors that nobody uses, while those in use do not change",
        remedy="build the optimizer last: after the model is changed, copied, wrapped or sharded",
    )
