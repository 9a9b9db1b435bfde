"""running-frozen-batch-norm

## What it does
Reports BatchNorm layers whose parameters are frozen and whose statistics go on running.

## Why it hurts
`requires_grad=False` does not freeze running mean and variance. In training mode they follow the new data,
and the frozen backbone is no longer the one that was trained.

## Buggy
```python
backbone.requires_grad_(False)
model.train()
```

## Fixed
```python
backbone.requires_grad_(False)
model.train()
backbone.eval()
```

## What looks like it and is fine
BatchNorm in evaluation mode inside a model in training mode.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.records.units import counted

EXPLAINS = ("training-mode-in-evaluation",)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.running_frozen:
            names = layout.running_frozen
            yield Finding(
                check="running-frozen-batch-norm",
                severity="warning",
                seen=f"{counted(len(names), 'BatchNorm layer')} with frozen parameters ran in training: "
                f"{', '.join(names[:3])}",
                where=names[0],
                why="their running statistics follow the new data, so the frozen part changes after all",
                remedy="put the frozen part into evaluation mode after every model.train()",
            )
            return
