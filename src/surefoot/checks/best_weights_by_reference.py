"""best-weights-by-reference

## What it does
Reports a state_dict that is kept for later and still shares its memory with the model.

## Why it hurts
`state_dict()` returns the live tensors. By the time the best weights are loaded or saved, they are the last
ones.

## Buggy
```python
best = model.state_dict()
```

## Fixed
```python
best = copy.deepcopy(model.state_dict())
```

## What looks like it and is fine
A state_dict that is saved at once.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    kept = [file for file in evidence.files if file.kind == "alias"]
    if kept:
        yield Finding(
            check="best-weights-by-reference",
            severity="error" if kept[0].detail.startswith(("loaded", "saved")) else "warning",
            seen=f"a state_dict was {kept[0].detail} and shares memory with the model, which was trained on meanwhile",
            where=kept[0].where or "state_dict",
            why="the weights that were to be kept are the last ones",
            remedy="keep copy.deepcopy(model.state_dict()), or save it at once",
        )
