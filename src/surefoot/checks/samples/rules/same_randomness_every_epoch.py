"""same-randomness-every-epoch

## What it does
Reports workers that draw the same random numbers in every epoch, and passes that start with exactly the same
augmented samples.

## Why it hurts
A `worker_init_fn` that seeds with a constant runs again whenever workers start. Every epoch shows exactly the same
augmented samples.

## Buggy
```python
DataLoader(data, num_workers=4, worker_init_fn=lambda worker: np.random.seed(42 + worker))
```

## Fixed
```python
DataLoader(data, num_workers=4, worker_init_fn=lambda worker: np.random.seed(torch.initial_seed() % 2**32))
```

## What looks like it and is fine
Persistent workers, which are seeded once; data sets without random numbers.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for samples in sample_facts.samples:
        if samples.alike_epochs:
            yield Finding(
                check="same-randomness-every-epoch",
                severity="error",
                seen=f"reading {samples.where} drew the same random numbers in two epochs",
                where=samples.where,
                why="every epoch shows exactly the same augmented samples",
                remedy="leave seeding to torch, or derive the seed from torch.initial_seed()",
            )
