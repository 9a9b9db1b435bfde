"""zero-grad-between-micro-batches

## What it does
Reports gradients of one line of backward that are cleared before the update as often as they are used.

## Why it hurts
Only the last micro-batch of every update counts; the work on all others is thrown away.

## Buggy
```python
for x, y in micro_batches:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
optimizer.step()
```

## Fixed
```python
optimizer.zero_grad()
for x, y in micro_batches:
    criterion(model(x), y).backward()
optimizer.step()
```

## What looks like it and is fine
A separate backward for an adversarial example or a probe, whose gradients are cleared on purpose; gradients that the
loop copies or adds up before it clears them, for example those of single tasks or samples; gradients of updates that
a gradient scaler skipped.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.records.finding import Finding

EXPLAINS = ("summed-micro-batches", "mean-of-unequal-means")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(gradient_facts: GradientFacts) -> Iterator[Finding]:
    lost = [each for each in gradient_facts.discards if each.used >= 2 and each.discarded >= max(2, 0.75 * each.used)]
    if lost:
        yield Finding(
            check="zero-grad-between-micro-batches",
            severity="error",
            seen=f"of {lost[0].discarded + lost[0].used} backward calls of this line, the gradients of "
            f"{lost[0].discarded} were cleared before any update used them",
            where=lost[0].where or "the loop",
            why="only the last micro-batch of every update counts",
            remedy="call zero_grad once per update, before the first backward",
        )
