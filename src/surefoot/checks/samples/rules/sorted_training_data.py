"""sorted-training-data

## What it does
Reports a training loader that reads a data set in the order of its labels, and batches whose targets rise or fall
from one batch to the next.

## Why it hurts
Each batch holds one class, or numbers of one size. The model learns to answer what came last, and forgets the rest.

## Buggy
```python
loader = DataLoader(data, batch_size=32)
```

## Fixed
```python
loader = DataLoader(data, batch_size=32, shuffle=True)
```

## What looks like it and is fine
A loader without shuffling over data that is already mixed; time series, whose inputs rise with their targets;
evaluation; all samples in one batch; samples that are sorted by something that no loss asks for.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding

EXPLAINS = ("constant-targets",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts, loss_facts: LossFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    for samples in sample_facts.samples:
        if samples.sorted_labels:
            seen = f"{samples.where} is read in order, and {samples.sorted_labels} classes come one after another"
            yield _finding(seen, samples.where)
            return
    lines = {loss.where for loss in loss_facts.losses if loss.counts}
    for where in sorted(lines):
        counts = [loss.counts for loss in loss_facts.losses if loss.counts and loss.where == where]
        if _one_after_another(counts) and len([each for each in loop_facts.optimizers if each.updates]) == 1:
            yield _finding(
                f"{len(counts)} batches hold hardly more than one class each, one class after another", where
            )
            return
    for where, count in sample_facts.rising_targets[:1]:
        seen = f"the targets of {count} batches in a row only rise or only fall, and no input does"
        yield _finding(seen, where, "each batch holds targets of one size, so the model forgets what came before")


def _one_after_another(counts: list[tuple[int, ...]]) -> bool:
    """Do batches hold hardly more than one class each, although all of them together hold several, in few runs?"""
    if len(counts) < 6 or any(sum(each) < 8 for each in counts) or len({len(each) for each in counts}) != 1:
        return False
    together = _entropy([sum(each) for each in zip(*counts, strict=True)])
    alone = sum(_entropy(each) for each in counts) / len(counts)
    commonest = [each.index(max(each)) for each in counts]
    runs = 1 + sum(a != b for a, b in itertools.pairwise(commonest))
    return together > 0.3 and alone < 0.15 * together and 3 * runs <= len(counts) and len(set(commonest)) >= 2


def _entropy(counts: Sequence[int]) -> float:
    return -sum(each / sum(counts) * math.log(each / sum(counts)) for each in counts if each)


def _finding(
    seen: str, where: str, why: str = "each batch holds one class, so the model forgets what came before"
) -> Finding:
    return Finding(
        check="sorted-training-data",
        severity="warning",
        seen=seen,
        where=where or "the recipe's data",
        why=why,
        remedy="shuffle: pass shuffle=True, or draw a new order in every epoch",
    )
