"""recomputation-differs

## What it does
Reports a module whose forward gives a different result when recomputation runs it again in backward.

## Why it hurts
The gradients then belong to a different forward than the loss. It happens when a recomputed block draws from NumPy,
Python's `random` or a generator of its own, or depends on a counter.

## Buggy
```python
def forward(self, x):  # inside checkpoint(...)
    return self.layer(x * np.random.uniform(0.9, 1.1))
```

## Fixed
```python
def forward(self, x):
    return self.layer(x * torch.empty((), device=x.device).uniform_(0.9, 1.1))
```

## What looks like it and is fine
Dropout: torch restores its own generators before it runs a block again.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(gradient_facts: GradientFacts) -> Iterator[Finding]:
    if gradient_facts.recomputations:
        first = gradient_facts.recomputations[0]
        yield Finding(
            check="recomputation-differs",
            severity="error",
            seen=f"{counted(len(gradient_facts.recomputations), 'module')} gave a different result when run again in "
            f"backward; {first.module} by {first.difference:.2g} of its size",
            where=first.module,
            why="the gradients belong to a different forward than the loss",
            remedy="draw random numbers from torch's global generator inside recomputed blocks, and keep no counters",
        )
