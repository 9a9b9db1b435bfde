"""changing-samples

## What it does
Reports a data set that changes when its samples are read.

## Why it hurts
`torch.from_numpy` and slices share memory with what they come from. In-place augmentation piles up, epoch after
epoch, until the images are noise.

## Buggy
```python
x = torch.from_numpy(self.images[index])
x += noise
return x
```

## Fixed
```python
x = torch.from_numpy(self.images[index])
return x + noise
```

## What looks like it and is fine
Caches that fill as samples are read.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for samples in sample_facts.samples:
        if samples.changed_by_reading:
            yield Finding(
                check="changing-samples",
                severity="error",
                seen=f"reading one sample a few times changed {samples.where}.{samples.changed_by_reading}",
                where=samples.where,
                why="changes to a sample pile up over the epochs",
                remedy="copy before writing: x.clone(), x.copy(), or x + noise",
            )
