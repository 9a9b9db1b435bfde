"""parameter-outside-optimizer

## What it does
Reports trainable parameters that receive gradients but are held by no optimizer.

## Why it hurts
Their gradients are computed, stored, and never used: that part of the model stays at its random start.
It happens when a layer is added or replaced after the optimizer was built, or when only
`model.head.parameters()` was passed on.

## Buggy
```python
optimizer = torch.optim.AdamW(model.parameters())
model.head = nn.Linear(512, 10)
```

## Fixed
```python
model.head = nn.Linear(512, 10)
optimizer = torch.optim.AdamW(model.parameters())
```

## What looks like it and is fine
Frozen parameters (`requires_grad=False`); several optimizers that hold the parameters between them.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    outside = [p.name for p in evidence.parameters if p.trainable and p.reached and not p.optimized]
    if outside and evidence.updates:
        yield Finding(
            check="parameter-outside-optimizer",
            severity="error",
            seen=(
                f"{len(outside)} of {len(evidence.parameters)} parameters receive gradients and are in no "
                f"optimizer: {', '.join(outside[:4])}" + (", ..." if len(outside) > 4 else "")
            ),
            where=outside[0].rpartition(".")[0] or outside[0],
            why="their gradients are computed and thrown away; they keep their initial values",
            remedy="build the optimizer after the model is complete, from all its parameters; "
            "or freeze them with requires_grad_(False)",
        )
