"""pickled-module

## What it does
Mentions a module that is saved or pickled whole, alone or inside of something else, and weights that are saved under
the names they have inside a wrapper.

## Why it hurts
The file holds a reference to the class and where it was. Moved or renamed code cannot load it, and loading
it runs what it says. Names that begin with `module.` or `_orig_mod.` fit a model in the same wrapper alone.

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
            seen=f"what was saved is a {whole[0].detail} with the module itself",
            why="the file loads only where the same code stands in the same place",
            remedy="save model.state_dict()",
        )
    elif wrapped:
        yield _finding(
            wrapped[0],
            seen="weights were saved under the names that they have inside a wrapper",
            why="the file loads only into a model that is wrapped in the same way",
            remedy="save the state_dict of what is wrapped: ddp.module.state_dict(), compiled._orig_mod.state_dict()",
        )


def _finding(file: File, *, seen: str, why: str, remedy: str) -> Finding:
    where = file.where or "torch.save"
    return Finding(check="pickled-module", severity="info", seen=seen, where=where, why=why, remedy=remedy)
