"""best-weights-by-reference

## What it does
Reports weights that are kept for later but still share memory with the model: a state_dict, tensors of one in another
container, views of parameters, a shallow copy of the model.

## Why it hurts
`state_dict()` returns the live tensors. By the time you load or save the best weights, they are the last ones.

## Buggy
```python
best = model.state_dict()
```

## Fixed
```python
best = copy.deepcopy(model.state_dict())
```

## What looks like it and is fine
A state_dict that is saved or read at once.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    kept = [file for file in saved_facts.files if file.kind == "alias"]
    relied_on = [file for file in kept if not file.detail.startswith("kept")]
    for file in (relied_on or kept)[:1]:
        yield Finding(
            check="best-weights-by-reference",
            severity="error" if relied_on else "warning",
            seen=f"weights were {file.detail} but share memory with the model, which kept training",
            where=file.where or "state_dict",
            why="the weights that you kept are the last ones",
            remedy="keep copy.deepcopy(model.state_dict()), or save it at once",
        )
