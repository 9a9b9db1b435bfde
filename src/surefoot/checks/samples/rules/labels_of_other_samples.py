"""labels-of-other-samples

## What it does
Reports samples that do not keep their own labels. A label changes with every read; a collate function orders inputs
and labels differently; labels belong to the sample before or after; labels are sorted while inputs are not, or the
other way round; training labels have nothing to do with the inputs while evaluation labels do; inputs and targets
come from different rows of a loader's batch or of the loop's arrays; samples come again with another sample's target;
of arrays that were made together, the source shuffles or sorts only one; images are flipped or rotated without the
maps that belong to them; or the target is noise that no input was made from.

## Why it hurts
There is nothing to learn. The loss falls to that of guessing and stays there, or the model memorises the training
set.

## Buggy
```python
def collate(samples):
    inputs, labels = zip(*samples)
    return pad_sequence(sorted(inputs, key=len)), torch.tensor(labels)
```

## Fixed
```python
def collate(samples):
    inputs, labels = zip(*sorted(samples, key=lambda sample: len(sample[0])))
    return pad_sequence(inputs), torch.tensor(labels)
```

## What looks like it and is fine
Mixup, whose inputs are shuffled like its targets; random targets in both training and evaluation; pairs that are
redrawn together; shuffled copies next to what they were made from; shuffles with the same seed; inputs that predict
their labels all the same.
"""

from collections.abc import Iterator

from surefoot.checks.facts.samples import SampleFacts, Samples
from surefoot.records.finding import Finding


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    told = [(_told(samples, reorders=sample_facts.reorders), samples.where) for samples in sample_facts.samples]
    told += [(each.seen, each.where) for each in sample_facts.parted]
    if not any(samples.told_by_inputs for samples in sample_facts.samples):
        told += [(each.seen, each.where) for each in sample_facts.ordered_apart]
    seen, where = next((each for each in told if each[0]), ("", ""))
    if seen:
        yield Finding(
            check="labels-of-other-samples",
            severity="warning",
            seen=seen,
            where=where,
            why="inputs say nothing about labels that are not their own",
            remedy="sort, shuffle and index inputs and labels together",
        )


def _told(samples: Samples, *, reorders: bool) -> str:
    if samples.redrawn_labels >= 2:
        return f"{samples.redrawn_labels} of 8 samples had a different label when they were read again"
    if samples.turned_alone:
        return "images are rotated or flipped, but the maps of the same size that come with them are not"
    if samples.collated_apart:
        return "collated into a batch, samples are in one order and their labels in another"
    if samples.label_shift:
        return f"labels depend on the sample {'before' if samples.label_shift > 0 else 'after'} their own"
    if samples.labels_in_order and reorders:
        return "either labels or inputs are sorted, the others are not, and neither predicts the other"
    if samples.unlike_evaluation:
        return "labels depend on the inputs in evaluation, but not at all in training"
    return ""
