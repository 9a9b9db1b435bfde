"""pickled-module

## What it does
Mentions a module that is saved or pickled whole, alone or inside of something else.

## Why it hurts
The file holds a reference to the class and where it was. Moved or renamed code cannot load it, and loading
it runs what it says.

## Buggy
```python
torch.save(model, "model.pt")
```

## Fixed
```python
torch.save(model.state_dict(), "model.pt")
```

## What looks like it and is fine
Scratch files.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    whole = [file for file in evidence.files if file.kind == "module"]
    if whole:
        yield Finding(
            check="pickled-module",
            severity="info",
            seen=f"what was saved is a {whole[0].detail} with the module itself",
            where=whole[0].where or "torch.save",
            why="the file loads only where the same code stands in the same place",
            remedy="save model.state_dict()",
        )
