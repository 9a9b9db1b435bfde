"""unrestored-optimizer

## What it does
Reports a loaded checkpoint whose optimizer state is not put back, or not all of it, before training goes on.

## Why it hurts
The moments start from zero, so the first updates are as large as those of a fresh run.

## Buggy
```python
model.load_state_dict(torch.load(path)["model"])
```

## Fixed
```python
state = torch.load(path)
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
```

## What looks like it and is fine
A file that holds weights alone.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    left = [file for file in evidence.files if file.kind == "unrestored-optimizer"]
    if left:
        yield Finding(
            check="unrestored-optimizer",
            severity="warning",
            seen="an optimizer was given a state without moments"
            if left[0].detail
            else "a loaded file holds the state of an optimizer, and no optimizer was given it before the updates",
            where=left[0].where or "torch.load",
            why="moments start from zero, so the first updates are as large as those of a fresh run",
            remedy="call optimizer.load_state_dict before training goes on",
        )
