"""leftover-micro-batches

## What it does
Reports gradients that are left over when a pass over the data ends in the middle of an accumulation.

## Why it hurts
The last micro-batches of every epoch are dropped, or leak into the first update of the next.

## Buggy
```python
if (number + 1) % 4 == 0:
    optimizer.step()
```

## Fixed
```python
if (number + 1) % 4 == 0 or number + 1 == len(loader):
    optimizer.step()
```

## What looks like it and is fine
A loader whose length is a multiple of the accumulation; one that is iterated without end; a count that continues from
one pass to the next, so that every update has the same number of micro-batches.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(loop_facts: LoopFacts, gradient_facts: GradientFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    left = [loader for loader in sample_facts.loaders if loader.leftover]
    for loader in left:
        seen = f"{loader.leftover} of {loader.window} micro-batches unused"
        yield _finding(
            f"a pass over {loader.batches} batches ended with the gradients of {seen}", f"the loader of {loader.kind}"
        )
    if not left and (seen := _by_updates(loop_facts, gradient_facts)):
        yield _finding(seen, loop_facts.updates[0].where or "the loop")


def _by_updates(loop_facts: LoopFacts, gradient_facts: GradientFacts) -> str:
    """Tells of updates that used more backwards than nearly all others, or of gradients that are sometimes cleared."""
    sizes = [update.micro_batches for update in loop_facts.updates if update.micro_batches]
    usual = max(set(sizes), key=sizes.count, default=1)
    lines = max((update.lines for update in loop_facts.updates if update.micro_batches == usual), default=1)
    larger = [
        each.micro_batches for each in loop_facts.updates if each.lines <= lines
    ]  # an extra loss now and then is fine
    larger = [size for size in larger if usual < size < 2 * usual]
    cleared = [each for each in gradient_facts.discards if 2 <= each.discarded < 0.75 * each.used]
    if usual < 2 or len(sizes) < 8 or sizes.count(usual) + len(larger) < len(sizes) - 1 or 4 * len(larger) > len(sizes):
        return ""
    if larger:
        often = counted(len(larger), "update")
        return f"{often} used the gradients of {larger[0]} backward calls, nearly all others of {usual}"
    return (
        f"the gradients of {cleared[0].discarded} backward calls were cleared before any update used them"
        if cleared
        else ""
    )


def _finding(seen: str, where: str) -> Finding:
    return Finding(
        check="leftover-micro-batches",
        severity="warning",
        seen=seen,
        where=where,
        why="they are dropped, or leak into the first update of the next epoch",
        remedy="also call optimizer.step() at the end of a pass, or make its length a multiple of the accumulation",
    )
