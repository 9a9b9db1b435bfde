"""augmented-evaluation-data

## What it does
Reports evaluation on random samples: of the same data set object as training, or of another one of its class whose
samples change and keep their labels. Also reports classification batches that are changed at random on their way into
the model.

## Why it hurts
`random_split` shares one data set between both parts. The training augmentation then applies to evaluation, whose
numbers are noisy and too low.

## Buggy
```python
train, valid = random_split(Images(augment=True), [0.9, 0.1])
```

## Fixed
```python
train = Subset(Images(augment=True), indices[:cut])
valid = Subset(Images(augment=False), indices[cut:])
```

## What looks like it and is fine
A shared data set without random numbers; randomness that belongs to the task, such as noise next to the clean input,
several views of every batch, passes in a row with more and more noise, masked tokens and attacks.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding

_SIZES = 2
"""Batches have one size, and the last may have another; random masks give many sizes."""


def check(loss_facts: LossFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    for samples in sample_facts.samples:
        if samples.random_in_evaluation:
            yield _finding(
                f"evaluation reads {samples.where} like training does, and a sample changed when it was read again",
                samples.where,
            )
            return
    labels = [loss for loss in loss_facts.losses if loss.counts]
    masked = any(loss.valid < loss.targets for loss in labels) or len({loss.targets for loss in labels}) > _SIZES
    labelled = bool(labels) and not masked
    for loader in sample_facts.loaders:
        if loader.role == "evaluation" and loader.random_inputs and labelled:
            yield _finding(
                f"the first batch of {loader.kind} entered the model with different values in another pass", loader.kind
            )
            return


def _finding(seen: str, where: str) -> Finding:
    return Finding(
        check="augmented-evaluation-data",
        severity="warning",
        seen=seen,
        where=where,
        why="the training augmentation also applies to evaluation",
        remedy="build two data sets, one with and one without augmentation, and split the indices",
    )
