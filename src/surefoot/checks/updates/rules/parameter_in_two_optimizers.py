"""parameter-in-two-optimizers

## What it does
Reports parameters that two optimizers update in turn.

## Why it hurts
Each optimizer moves what the other has just moved, and its statistics do not know about it. The step is the sum of
both, and weight decay counts twice.

## Buggy
```python
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.AdamW(model.parameters())
```

## Fixed
```python
first = torch.optim.SGD(model.body.parameters(), lr=0.1)
second = torch.optim.AdamW(model.head.parameters())
```

## What looks like it and is fine
One optimizer after the other; an optimizer that wraps another and shares its groups.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    shared = [optimizer for optimizer in loop_facts.optimizers if optimizer.doubly_held]
    if len(shared) >= 2:
        names = shared[0].doubly_held
        yield Finding(
            check="parameter-in-two-optimizers",
            severity="warning",
            seen=f"{shared[0].kind} and {shared[1].kind} both update {counted(len(names), 'parameter')}, "
            f"for example {names[0]}",
            where=names[0].rpartition(".")[0] or names[0],
            why="each moves what the other has just moved",
            remedy="give every parameter to one optimizer",
        )
