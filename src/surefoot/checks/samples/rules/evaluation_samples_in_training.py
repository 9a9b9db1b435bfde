"""evaluation-samples-in-training

## What it does
Reports evaluation samples that are also training samples, and evaluated windows of a series that end inside training
windows.

## Why it hurts
Memorised samples count as understood: the measured quality is too good.

## Buggy
```python
train, valid = Subset(data, range(0, 900)), Subset(data, range(800, 1000))
```

## Fixed
```python
train, valid = Subset(data, range(0, 900)), Subset(data, range(900, 1000))
```

## What looks like it and is fine
Measuring on the training set as well, next to held-out samples. Windows that begin before the split and end after it:
only their newest values must be new.
"""

from collections.abc import Iterator
from itertools import groupby

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.samples import SampleFacts, Shown
from surefoot.records.finding import Finding

_SHARE, _SHARE_OF_NAMES = 0.05, 0.25
"""At least this share of a forward's samples was trained on; more, if they are short rows of whole numbers."""
_FEWEST = 4
_FEWEST_WINDOWS, _SHARE_OF_WINDOWS = 12, 0.3
"""In a series that is split by time, no evaluated window ends inside a training window."""
_RARE = 1 / 3
"""Forwards after more than this share of the updates are part of the step, like those of a teacher."""
_ALL = 0.85
"""This share of a forward's samples stands for all of them, because a few updates are not read."""
_BORDER = (0.15, 0.7)
"""The shared part of a forward in which the overlap of two neighbouring parts ends."""


def check(loop_facts: LoopFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    for samples in sample_facts.samples:
        if samples.shared_with_evaluation >= 0.01:
            share = f"{samples.shared_with_evaluation:.0%} of the evaluation samples are also training samples"
            yield _finding(share, samples.where)
            return
    for model in dict.fromkeys(each.model for each in sample_facts.shown):
        shown = [each for each in sample_facts.shown if each.model == model and each.update]
        if _are_trained_on(shown, len(loop_facts.updates)) or _overlap(shown, len(loop_facts.updates)):
            shared, samples_seen = sum(each.shared for each in shown), sum(each.samples for each in shown)
            yield _finding(f"{shared} of {samples_seen} evaluated samples had been trained on", model)
            return
    for model in dict.fromkeys(each.model for each in sample_facts.overlaps):
        seen = [each for each in sample_facts.overlaps if each.model == model and each.update]
        windows, shared = sum(each.windows for each in seen), sum(each.shared for each in seen)
        rare = len({each.update for each in seen}) <= _RARE * len(loop_facts.updates)
        if rare and windows >= _FEWEST_WINDOWS and shared >= _SHARE_OF_WINDOWS * windows:
            share = f"{shared} of {windows} evaluated windows end inside a window that was trained on"
            yield _finding(share, model, "split the series by time before windows are cut from it")
            return


def _are_trained_on(shown: list[Shown], updates: int) -> bool:
    """Do all forwards hold training samples? If only some do, the training set is measured on purpose.

    What is measured once, after training, is a test set: earlier evaluations are judged without it.
    """
    last = max((each.update for each in shown), default=0)
    before = [each for each in shown if each.update < last]
    shown = before if len({each.update for each in before}) > 1 else shown
    samples, shared = sum(each.samples for each in shown), sum(each.shared for each in shown)
    if shared < _FEWEST or len({each.update for each in shown}) > _RARE * updates:
        return False
    if any(each.names and each.distinct < 0.95 * each.samples for each in shown):
        return False
    share = shared / samples
    free = sum(each.shared == 0 for each in shown)
    by_chance = sum((1 - share) ** each.samples for each in shown)
    wanted = _SHARE_OF_NAMES if any(each.names for each in shown) else _SHARE
    return share >= wanted and free <= by_chance + 2 * by_chance**0.5


def _overlap(shown: list[Shown], updates: int) -> bool:
    """Do evaluations begin or end with training samples, and does one forward hold both these and others?

    A training set that is measured next to the held-out one has forwards of its own. The last two evaluations must
    agree: random samples, and a training set of which more and more is read, give different shares.
    """
    rounds = [[(each.samples, each.shared) for each in same] for _, same in groupby(shown, lambda each: each.update)]
    rounds = [each for each in rounds if len(each) == len(rounds[0])]  # the last may not have been read to its end
    told = 1 < len(rounds) <= _RARE * updates and rounds[-1] == rounds[-2]
    if not told or any(each.names for each in shown):
        return False
    parts = rounds[-1] if rounds[-1][-1][1] == 0 else rounds[-1][::-1]
    border = next((n for n, (samples, shared) in enumerate(parts) if shared < _ALL * samples), 0)
    samples, shared = parts[border]
    others = parts[border + 1 :]
    ends = bool(others) and all(shared == 0 for _, shared in others)
    return ends and _BORDER[0] <= shared / samples <= _BORDER[1] and min(shared, samples - shared) >= _FEWEST


def _finding(
    seen: str, where: str, remedy: str = "split once, by sample, before any duplication or augmentation"
) -> Finding:
    return Finding(
        check="evaluation-samples-in-training",
        severity="warning",
        seen=seen,
        where=where,
        why="memorised samples count as understood",
        remedy=remedy,
    )
