"""clipping-without-effect

## What it does
Reports gradient clipping that cannot work: after the update, before the last backward, on parameters that no
optimizer holds, or into new tensors that nothing uses. Also reports clipping of only a small part of what every
update uses. If several lines clip, as for several optimizers, each is judged by itself.

## Why it hurts
The gradients that an update uses are not limited, although the code says so. The first spike goes through.

## Buggy
```python
loss.backward()
optimizer.step()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## Fixed
```python
loss.backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
```

## What looks like it and is fine
Clipping with an infinite limit, which measures the norm; clipping of parts one by one, and of one optimizer of
several.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.updates import Clip, UpdateFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_SMALL = 0.2
"""Clipping less than this share of an update's elements does not limit it."""


def check(loop_facts: LoopFacts, update_facts: UpdateFacts) -> Iterator[Finding]:
    clips = [clip for clip in update_facts.clips if not clip.unlimited]
    share = max((update.clipped_share for update in loop_facts.updates), default=0.0)
    if update_facts.unused_limits and share < _SMALL:
        yield Finding(
            check="clipping-without-effect",
            severity="error",
            seen="gradients are clipped into new tensors that nothing ever uses",
            where=update_facts.unused_limits[0],
            why="the gradients that an update uses are not limited",
            remedy="clip them in place, p.grad.clamp_(-c, c), or assign the result: p.grad = clipped",
        )
        return
    if share >= _SMALL:
        clips, share = _of_an_idle_line(clips), 0.0  # what other lines clip is used
    if len(clips) < 2 or len(loop_facts.updates) < 2:
        return
    yield Finding(
        check="clipping-without-effect",
        severity="warning" if share else "error",
        seen=f"{counted(len(clips), 'call')} clipped at most {share:.1%} of the elements that an update uses"
        if share
        else _fault(clips),
        where=clips[-1].where,
        why="the gradients that an update uses are not limited",
        remedy="clip the optimizer's parameters between backward and step",
    )


def _of_an_idle_line(clips: list[Clip]) -> list[Clip]:
    """The calls of one line that only clips used or missing gradients, next to lines that work."""
    lines: dict[str, list[Clip]] = {}
    for clip in clips:
        lines.setdefault(clip.where, []).append(clip)
    for calls in lines.values():
        idle = [clip.used_already or (not clip.with_gradient and clip.trainable and clip.optimized) for clip in calls]
        if len(calls) >= 3 and all(idle):
            return calls
    return []


def _fault(clips: list[Clip]) -> str:
    """Names the fault that most calls share."""
    faults = {
        "on an empty list of parameters, for example a used-up generator": lambda clip: not clip.parameters,
        "on parameters that no optimizer holds": lambda clip: not clip.optimized,
        "on parameters without any gradient": lambda clip: not clip.with_gradient,
        "on gradients that the last update had already used": lambda clip: clip.used_already,
        "before the last backward of an update": lambda clip: True,
    }
    found = {kind: sum(map(fault, clips)) for kind, fault in faults.items()}
    kind = next(kind for kind, count in found.items() if count >= len(clips) - 1)
    return f"{found[kind]} of {len(clips)} calls were {kind}"
