"""idle-accelerator

## What it does
Reports a model that is trained on the CPU of a machine whose accelerator is idle.

## Why it hurts
`module.to(device)` moves a module in place, but `tensor.to(device)` returns a new tensor: if you do not assign it,
nothing moves. The run is tens of times slower than it could be, and no warning says so.

## Buggy
```python
device = "cpu" if torch.cuda.is_available() else "cuda"
model.to(device)
```

## Fixed
```python
device = torch.accelerator.current_accelerator() or "cpu"
model.to(device)
```

## What looks like it and is fine
Small models that are trained on the CPU on purpose.
"""

from collections.abc import Iterator

from surefoot.checks.facts.updates import UpdateFacts
from surefoot.records.finding import Finding


def check(update_facts: UpdateFacts) -> Iterator[Finding]:
    if update_facts.idle_accelerator:
        yield Finding(
            check="idle-accelerator",
            severity="info",
            seen=f"every parameter is on the CPU; {update_facts.idle_accelerator} is available and holds none",
            where="the model",
            why="the run is many times slower than this machine allows",
            remedy="move the model and its batches to torch.accelerator.current_accelerator()",
        )
