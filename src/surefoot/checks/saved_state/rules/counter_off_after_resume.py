"""counter-off-after-resume

## What it does
Reports an epoch or step counter that is wrong after training resumed from a file. The next file shows it, or an
attribute of the object that trains.

## Why it hurts
An epoch is trained twice or skipped, a schedule is shifted, and files are overwritten by others of the same number.

## Buggy
```python
start = state["epoch"]  # the last one that was finished
for epoch in range(start, epochs):
    ...
```

## Fixed
```python
start = state["epoch"] + 1
for epoch in range(start, epochs):
    ...
```

## What looks like it and is fine
Files that are loaded to look at their weights; counters of anything but updates or passes.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    off = {}
    for held in saved_facts.held_counters:
        off[held.where, held.counter, held.loaded] = (
            f"training resumes with {held.attribute} {held.held}, not {held.expected}"
        )
    for each in saved_facts.resumptions:
        if each.saved is not None and each.saved != each.expected:
            off[each.where, each.counter, each.loaded] = f"the next file says {each.saved}, not {each.expected}"
    for (where, counter, loaded), said in off.items():
        yield Finding(
            check="counter-off-after-resume",
            severity="warning",
            seen=f"{counter!r} was {loaded} in the file; {said}",
            where=where,
            why="steps are counted twice, or skipped",
            remedy="save the number of the last finished epoch or step, and resume with the next",
        )
