"""unrestored-scheduler

## What it does
Reports a resumed run whose learning rate differs from that of the checkpoint, or whose schedule starts over.

## Why it hurts
A scheduler that is built after the optimizer was restored starts its curve over: the rate jumps back to the
beginning, warm-up and all.

## Buggy
```python
optimizer.load_state_dict(state["optimizer"])
scheduler = CosineAnnealingLR(optimizer, T_max=1000)
```

## Fixed
```python
scheduler = CosineAnnealingLR(optimizer, T_max=1000)
optimizer.load_state_dict(state["optimizer"])
scheduler.load_state_dict(state["scheduler"])
```

## What looks like it and is fine
A schedule that is restarted with new weights only; an optimizer that is reset to an earlier state, as after a search
for a rate, or to the best so far.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    left = [file for file in saved_facts.files if file.kind == "unrestored-scheduler"]
    if left:
        yield Finding(
            check="unrestored-scheduler",
            severity="warning",
            seen=f"the scheduler was not restored: {left[0].detail}",
            where=left[0].where or "torch.load",
            why="the schedule starts over, so the learning rate jumps",
            remedy="save scheduler.state_dict() and load it after the optimizer",
        )
