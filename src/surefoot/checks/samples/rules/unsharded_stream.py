"""unsharded-stream

## What it does
Reports a stream that every worker yields as a whole, or whose workers yield each other's samples.

## Why it hurts
An `IterableDataset` is copied into every worker. Unless each worker takes its share, each sample comes as often as
there are workers, one right after the other.

## Buggy
```python
def __iter__(self):
    yield from self.lines
```

## Fixed
```python
def __iter__(self):
    worker = get_worker_info()
    yield from itertools.islice(self.lines, worker.id, None, worker.num_workers)
```

## What looks like it and is fine
Endless streams of random samples, which differ; one worker.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    read = [each.where for each in sample_facts.samples if each.whole_stream]
    handed_out = [each.kind for each in sample_facts.loaders if each.told_twice and each.role == "training"]
    for where in dict.fromkeys((*read, *handed_out)):
        yield Finding(
            check="unsharded-stream",
            severity="error",
            seen=f"two workers reading {where} yielded the same samples",
            where=where,
            why="every worker yields the same samples",
            remedy="take each worker's share in __iter__, with torch.utils.data.get_worker_info()",
        )
