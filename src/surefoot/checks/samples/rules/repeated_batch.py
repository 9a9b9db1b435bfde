"""repeated-batch

## What it does
Reports a loop that gives its model the same inputs in four updates in a row although a loader has more; in three, if
each of them restarts the loader or the run has no more. Also reports a loop that makes all its updates from the same
part of an array, a list of samples or a text, unchanged or changed anew in every step.

## Why it hurts
The loss falls beautifully: the model memorises one batch. It happens when `next(iter(loader))` is left inside the
loop after an overfitting test.

## Buggy
```python
for _ in range(steps):
    x, y = next(iter(loader))
```

## Fixed
```python
for x, y in loader:
    ...
```

## What looks like it and is fine
Training on the whole data set at once, as graph networks and LBFGS do; several updates for each batch, as in inner
loops.
"""

from collections.abc import Iterator
from itertools import groupby

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding

EXPLAINS = ("same-order-every-epoch",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_MANY = 8
"""At least this many updates must have used a batch of which only some inputs stay the same."""


def check(loop_facts: LoopFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    loaders = [each for each in sample_facts.loaders if each.role != "evaluation" and (each.batches or 2) > 1]
    if sample_facts.part_of and not any(each.role == "training" for each in loaders):
        yield _finding(f"all updates use the same batch out of {sample_facts.part_of} samples", "the training loop")
        return
    if not loaders:
        return
    worked_through = any(each.worked_through for each in loaders)
    most = max(loaders, key=lambda each: each.updates_of_a_batch)
    more, stale = f"the loader has {most.batches or 'more'} batches", most.updates_of_a_batch
    if stale >= _MANY and not worked_through:
        yield _finding(f"one batch of the loader was used in {stale} updates in a row; {more}", most.kind)
        return
    by_update: dict[tuple[str, int], list[int]] = {}
    for forward in loop_facts.forwards:
        if (forward.trained or forward.backpropagated) and forward.batch:
            by_update.setdefault((forward.model, forward.update), []).append(forward.batch)
    for model in dict.fromkeys(name for name, _ in by_update):
        batches = [tuple(each) for (name, _), each in sorted(by_update.items()) if name == model]
        longest = max(len(list(run)) for _, run in groupby(batches))
        if worked_through and longest <= stale:
            continue  # every batch is used so many times
        in_all = len(batches) == 3 and loop_facts.ended
        if longest >= 4 or (longest == 3 and (loaders[0].passes >= 3 or in_all)):
            yield _finding(f"{model} saw the same inputs in {longest} updates in a row; {more}", model)
            return


def _finding(seen: str, where: str) -> Finding:
    return Finding(
        check="repeated-batch",
        severity="warning",
        seen=seen,
        where=where,
        why="the model memorises one batch",
        remedy="iterate over the loader; next(iter(loader)) starts over every time",
    )
