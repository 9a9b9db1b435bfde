"""swapped-betas

## What it does
Reports an optimizer of the Adam family whose first beta is larger than its second.

## Why it hurts
The first beta averages gradients, over about 10 updates with 0.9. The second averages their squares, over about 1,000
with 0.999. Swapped, each update follows gradients that are a thousand updates old, scaled by the last ten. Training
is slow and unstable, and no error is raised.

## Buggy
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.999, 0.9))
```

## Fixed
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999))
```

## What looks like it and is fine
Two equal betas; a small first one, as in many GANs.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    for number, optimizer in enumerate(loop_facts.optimizers):
        if optimizer.betas is not None and optimizer.betas[0] > optimizer.betas[1]:
            where = next((each.where for each in loop_facts.updates if each.optimizer == number), "")
            yield Finding(
                check="swapped-betas",
                severity="warning",
                seen=f"{optimizer.kind} has betas {optimizer.betas}: it averages gradients over more updates than "
                "their squares",
                where=where or "the optimizer",
                why="updates follow very old gradients, scaled by the size of the last few",
                remedy=f"swap them: betas=({optimizer.betas[1]}, {optimizer.betas[0]})",
            )
