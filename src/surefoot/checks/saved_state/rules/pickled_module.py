"""pickled-module

## What it does
Mentions a module that is saved or pickled whole, alone or inside something else, and weights that are saved under the
names they have inside a wrapper.

## Why it hurts
The file refers to the class and its place in your code. Moved or renamed code cannot load it, and loading it runs
what the file says. Names that begin with `module.` or `_orig_mod.` only fit a model in the same wrapper.

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

from surefoot.checks.facts.saved_state import File, SavedStateFacts
from surefoot.records.finding import Finding


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    whole = [file for file in saved_facts.files if file.kind == "module"]
    wrapped = [file for file in saved_facts.files if file.kind == "wrapper-names"]
    if whole:
        yield _finding(
            whole[0],
            seen=f"the saved object is a {whole[0].detail} with the module itself",
            why="the file loads only where the same code is in the same place",
            remedy="save model.state_dict()",
        )
    elif wrapped:
        yield _finding(
            wrapped[0],
            seen="weights were saved under the names they have inside a wrapper",
            why="the file loads only into a model with the same wrapper",
            remedy="save the state_dict of the wrapped model: ddp.module.state_dict(), compiled._orig_mod.state_dict()",
        )


def _finding(file: File, *, seen: str, why: str, remedy: str) -> Finding:
    where = file.where or "torch.save"
    return Finding(check="pickled-module", severity="info", seen=seen, where=where, why=why, remedy=remedy)
