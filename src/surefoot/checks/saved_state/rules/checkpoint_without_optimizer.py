"""checkpoint-without-optimizer

## What it does
Reports checkpoints that hold weights and a step count, but no optimizer state.

## Why it hurts
A run that resumes from it starts with empty moments: the first updates are as large as those of a fresh run, and the
loss jumps.

## Buggy
```python
torch.save({"epoch": epoch, "model": model.state_dict()}, path)
```

## Fixed
```python
torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
```

## What looks like it and is fine
Weights alone, for inference and not for resuming; the best weights, saved at a new record, with their score or in a
file whose name says so; what is saved after training, unless it holds a schedule or is called a checkpoint; what is
saved next to a file that has the state; optimizers without a state.
"""

from collections.abc import Iterator

from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(saved_facts: SavedStateFacts) -> Iterator[Finding]:
    bare = [file for file in saved_facts.files if file.kind == "without-optimizer"]
    if bare:
        yield Finding(
            check="checkpoint-without-optimizer",
            severity="warning",
            seen=f"{counted(len(bare), 'file')} with weights and a step count, but without optimizer state",
            where=bare[0].where or "torch.save",
            why="a run resumed from it starts with empty moments, and the loss jumps",
            remedy="also save optimizer.state_dict(); for inference, save the weights alone",
        )
