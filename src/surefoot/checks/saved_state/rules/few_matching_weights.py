"""few-matching-weights

## What it does
Reports a file of which a model loads less than half, although it holds tensors of the right shapes under other names.
The file is loaded with `load_state_dict(strict=False)`, merged into the model's own weights, or compared name by name
in hand-written code.

## Why it hurts
A prefix (`module.`, `_orig_mod.`, `model.`) makes every name different, and `strict=False` reports nothing. The run
starts from random weights.

## Buggy
```python
model.load_state_dict(torch.load("ddp.pt"), strict=False)
```

## Fixed
```python
model.load_state_dict({name.removeprefix("module."): each for name, each in torch.load("ddp.pt").items()})
```

## What looks like it and is fine
A new head on loaded weights, however large; a part loaded into a larger model, or of a larger one.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    for file in saved_facts.files:
        least = 0.5 * min(file.wanted, file.found)
        unused = file.kind == "unused-load"
        if unused or (file.kind == "loose-load" and file.matched < least <= file.misnamed):
            yield Finding(
                check="few-matching-weights",
                severity="warning" if unused else "error",
                seen=f"{file.matched:,} of the model's {file.wanted:,} elements matched a file of {file.found:,}"
                + (f"; it holds {file.detail}" if file.detail else ""),
                where=file.where or "load_state_dict",
                why="the rest of the model keeps its random start, and strict=False does not report it",
                remedy="strip the prefix from the names, and load with strict=True",
            )
