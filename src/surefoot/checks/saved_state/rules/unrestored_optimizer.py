"""unrestored-optimizer

## What it does
Reports a loaded checkpoint whose optimizer state is not restored, or not all of it, before training resumes. Also
reports a checkpoint without such a state, if training that had one resumes from it.

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
A file of weights that starts other training: with other data, or another optimizer.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding

_SEEN = {
    "unrestored-optimizer": "a loaded file holds the state of an optimizer, but no optimizer loaded it",
    "forgotten-moments": "training resumed from the weights of a file with an optimizer that lost its moments",
}


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    left = [file for file in saved_facts.files if file.kind in _SEEN]
    if left:
        yield Finding(
            check="unrestored-optimizer",
            severity="warning",
            seen="an optimizer loaded a state without moments" if left[0].detail else _SEEN[left[0].kind],
            where=left[0].where or "torch.load",
            why="moments start from zero, so the first updates are as large as those of a fresh run",
            remedy="also save optimizer.state_dict(), and load it before training resumes",
        )
