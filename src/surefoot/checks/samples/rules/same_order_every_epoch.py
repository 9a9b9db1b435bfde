"""same-order-every-epoch

## What it does
Reports a loader that shuffles but starts every pass in the same order, also if a new loader is made for every pass or
after a resume, and a loop that shuffles the rows of its arrays once for all passes.

## Why it hurts
`DistributedSampler` shuffles by its epoch, which you have to set; a generator that is reseeded in every epoch repeats
itself. Batches always hold the same samples together.

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
A loader that does not shuffle; one epoch; a part of the rows that was drawn once; several trainings with one seed; two
loaders that are read side by side in one order.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    training = [loader for loader in sample_facts.loaders if loader.role == "training"]
    alike = [each for each in training if (each.batches or 2) >= 2 and (each.same_epoch or each.same_first_batch)]
    for loader in alike:
        how = "set_epoch was never called" if loader.same_epoch else "the first batch always held the same samples"
        seen = f"{loader.passes} passes over {loader.kind} had the same order: {how}"
        yield _finding(seen, f"the loader of {loader.kind}")
    again = [loader for loader in training if loader.order_again and not alike]
    if again:
        seen = f"passes over {again[0].kind} had the same order: {again[0].order_again}"
        yield _finding(seen, f"the loader of {again[0].kind}")
    if sample_facts.shuffled_once and not training:
        seen = f"all passes go through {sample_facts.shuffled_once} rows in the same order, which was shuffled once"
        yield _finding(seen, "the training loop")


def _finding(seen: str, where: str) -> Finding:
    return Finding(
        check="same-order-every-epoch",
        severity="warning",
        seen=seen,
        where=where,
        why="batches always hold the same samples together",
        remedy="draw a new order before each pass: call sampler.set_epoch(epoch), or seed a generator only once",
    )
