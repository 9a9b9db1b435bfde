"""clipping-scaled-gradients

## What it does
Reports clipping of gradients that are still multiplied by a gradient scaler's scale.

## Why it hurts
With a scale of 65,536, every gradient is over the limit. All are clipped to it and then divided by the
scale: the update is thousands of times too small.

## Buggy
```python
scaler.scale(loss).backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
```

## Fixed
```python
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
```

## What looks like it and is fine
A scaler that is switched off.
"""

from collections.abc import Iterator

from surefoot.checks.facts.updates import UpdateFacts
from surefoot.records.finding import Finding


def check(update_facts: UpdateFacts) -> Iterator[Finding]:
    scaled = [clip for clip in update_facts.clips if clip.scaled and not clip.unlimited]
    if scaled:
        yield Finding(
            check="clipping-scaled-gradients",
            severity="error",
            seen=f"{len(scaled)} of {len(update_facts.clips)} calls clipped gradients before scaler.unscale_()",
            where=scaled[0].where,
            why="scaled gradients are all over the limit, so the update is far too small",
            remedy="call scaler.unscale_(optimizer) before clipping",
        )
