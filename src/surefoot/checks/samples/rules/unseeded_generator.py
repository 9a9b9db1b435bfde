"""unseeded-generator

## What it does
Reports a loop that seeds torch and draws from the global generator of Python or numpy without seeding it.

## Why it hurts
The run cannot be repeated: augmentations, orders or splits differ from run to run although a seed is set.

## Buggy
```python
torch.manual_seed(0)
random.shuffle(files)
```

## Fixed
```python
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
```

## What looks like it and is fine
Separate generators that are made with a seed; draws in worker processes, whose generators torch seeds.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for name in sample_facts.unseeded_generators:
        yield Finding(
            check="unseeded-generator",
            severity="info",
            seen=f"torch is seeded; {name} draws numbers and is never seeded",
            where=name,
            why="another run with the same seed draws different numbers",
            remedy=f"also call {name}.seed(seed), or draw from a generator of your own",
        )
