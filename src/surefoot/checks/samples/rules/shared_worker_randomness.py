"""shared-worker-randomness

## What it does
Reports a data set whose workers all draw the same random numbers.

## Why it hurts
A generator stored on the data set is copied into every worker. With four workers, every augmentation comes four
times, on neighbouring samples.

## Buggy
```python
self.rng = np.random.default_rng(0)  # in __init__, used in __getitem__
```

## Fixed
```python
rng = np.random.default_rng((torch.initial_seed(), index))  # in __getitem__
```

## What looks like it and is fine
Random numbers that depend on the index alone; the global generators, which torch seeds for each worker.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for samples in sample_facts.samples:
        if samples.alike_workers:
            yield Finding(
                check="shared-worker-randomness",
                severity="error",
                seen=f"for the same sample of {samples.where}, two workers drew the same random numbers",
                where=samples.where,
                why="every worker repeats the same augmentations",
                remedy="draw from the global generators, or seed a generator per worker from torch.initial_seed()",
            )
