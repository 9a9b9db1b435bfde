"""benchmarked-kernels

## What it does
Reports `torch.backends.cudnn.benchmark` in a run that asks for deterministic algorithms, of torch or of cuDNN.

## Why it hurts
cuDNN then tries several kernels and picks the fastest. The choice differs from run to run, and so do the bits of the
results, although each kernel is deterministic.

## Buggy
```python
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = True
```

## Fixed
```python
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
```

## What looks like it and is fine
Benchmarking in runs that need not give the same bits.
"""

from collections.abc import Iterator

from surefoot.checks.facts.updates import UpdateFacts
from surefoot.records.finding import Finding


def check(update_facts: UpdateFacts) -> Iterator[Finding]:
    if update_facts.benchmarks_kernels:
        yield Finding(
            check="benchmarked-kernels",
            severity="info",
            seen="cudnn.benchmark is on in a run that asks for deterministic algorithms",
            where="torch.backends.cudnn",
            why="kernels are chosen by their speed, which differs from run to run",
            remedy="set torch.backends.cudnn.benchmark = False",
        )
