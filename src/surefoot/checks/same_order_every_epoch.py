"""same-order-every-epoch

## What it does
Reports a loader that shuffles and begins every pass in the same order.

## Why it hurts
`DistributedSampler` shuffles by its epoch, which somebody has to set; a generator seeded anew per epoch
repeats itself. Batches always hold the same samples together.

## Buggy
```python
for epoch in range(epochs):
    for batch in loader: ...
```

## Fixed
```python
for epoch in range(epochs):
    loader.sampler.set_epoch(epoch)
    for batch in loader: ...
```

## What looks like it and is fine
A loader that does not shuffle; one epoch.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for loader in evidence.loaders:
        if loader.role != "training" or (loader.batches or 2) < 2:
            continue
        if loader.same_epoch or loader.same_first_batch:
            how = "set_epoch was never called" if loader.same_epoch else "the first batch always held the same samples"
            yield Finding(
                check="same-order-every-epoch",
                severity="warning",
                seen=f"{loader.passes} passes over {loader.kind} in the same order: {how}",
                where=f"the loader of {loader.kind}",
                why="batches always hold the same samples together",
                remedy="call sampler.set_epoch(epoch) before each pass; seed the loader's generator once",
            )
