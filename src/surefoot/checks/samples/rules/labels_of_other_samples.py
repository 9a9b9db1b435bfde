"""labels-of-other-samples

## What it does
Reports samples that do not keep their own labels: a label that is drawn anew with every reading, a collate
function that orders inputs and labels differently, labels that belong to the sample before or after, labels that
stand in an order while inputs do not, or the other way round, training labels that have nothing to do with the
inputs while those of evaluation do; batches whose inputs and targets are of different rows, of a loader's batch or
of the loop's arrays; samples that come again with another sample's target; arrays that were made together, of which
the source shuffles or sorts one and not the other; pictures that are flipped or turned without the maps that belong
to them; and noise as a target that no input was made from.

## Why it hurts
There is nothing to learn. The loss falls to that of guessing and stays there, or the training set is learned
by heart.

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
Mixup, whose inputs are shuffled like its targets; random targets, in training and evaluation alike; pairs that
are drawn anew together; shuffled copies that stand beside what they were made from; shuffles that are seeded
alike; inputs that tell their labels all the same.
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
        return f"{samples.redrawn_labels} of 8 samples had another label when they were read again"
    if samples.turned_alone:
        return "pictures are turned or flipped, and the maps of the same size that come with them are not"
    if samples.collated_apart:
        return "joined into a batch, samples stand in one order and their labels in another"
    if samples.label_shift:
        return f"labels depend on the sample {'before' if samples.label_shift > 0 else 'after'} their own"
    if samples.labels_in_order and reorders:
        return "either labels or inputs stand in an order, the others in none, and neither tells anything of the other"
    if samples.unlike_evaluation:
        return "labels depend on the inputs in evaluation, and not at all in training"
    return ""
