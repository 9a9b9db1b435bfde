"""running-frozen-batch-norm

## What it does
Reports BatchNorm layers with frozen parameters whose running statistics still change.

## Why it hurts
`requires_grad=False` does not freeze the running mean and variance. In training mode they follow the new data, and
the frozen backbone is no longer the one that was trained.

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
from surefoot.units import counted

EXPLAINS = ("training-mode-in-evaluation",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.running_frozen:
            names = layout.running_frozen
            yield Finding(
                check="running-frozen-batch-norm",
                severity="warning",
                seen=f"{counted(len(names), 'BatchNorm layer')} with frozen parameters ran in training mode: "
                f"{', '.join(names[:3])}",
                where=names[0],
                why="their running statistics follow the new data, so the frozen part still changes",
                remedy="call eval() on the frozen part after every model.train()",
            )
            return
