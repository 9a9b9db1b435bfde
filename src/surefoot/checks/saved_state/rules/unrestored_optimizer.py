"""unrestored-optimizer

## What it does
Reports a loaded checkpoint whose optimizer state is not put back, or not all of it, before training goes on; and one
that holds none, where training that had one goes on from it.

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
A file of weights from which other training begins: with other data, or another optimizer.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding

_SEEN = {
    "unrestored-optimizer": "a loaded file holds the state of an optimizer, and no optimizer was given it",
    "forgotten-moments": "training went on from the weights of a file, with an optimizer that has no moments any more",
}


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    left = [file for file in saved_facts.files if file.kind in _SEEN]
    if left:
        yield Finding(
            check="unrestored-optimizer",
            severity="warning",
            seen="an optimizer was given a state without moments" if left[0].detail else _SEEN[left[0].kind],
            where=left[0].where or "torch.load",
            why="moments start from zero, so the first updates are as large as those of a fresh run",
            remedy="save optimizer.state_dict(), too, and load it before training goes on",
        )
