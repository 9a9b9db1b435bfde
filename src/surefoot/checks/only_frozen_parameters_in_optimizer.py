"""only-frozen-parameters-in-optimizer

## What it does
Reports an optimizer all of whose parameters are frozen.

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
An optimizer that holds a whole model of which some is frozen.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for optimizer in evidence.optimizers:
        if optimizer.updates and optimizer.parameters and optimizer.frozen == optimizer.parameters:
            yield Finding(
                check="only-frozen-parameters-in-optimizer",
                severity="error",
                seen=f"all {optimizer.parameters} parameters of {optimizer.kind} have requires_grad=False",
                where=optimizer.kind,
                why="no update changes anything",
                remedy="give the optimizer the parameters that are to be trained, and freeze the others",
            )
