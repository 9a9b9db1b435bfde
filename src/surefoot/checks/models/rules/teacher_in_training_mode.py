"""teacher-in-training-mode

## What it does
Reports a network that runs in every step, never changes, and has Dropout or BatchNorm in training mode.

## Why it hurts
A teacher, reference or frozen extractor with active dropout gives other answers for the same input. BatchNorm in
training mode normalises with the statistics of each batch and overwrites the learned ones.

## Buggy
```python
teacher.load_state_dict(torch.load("teacher.pt"))
for x, y in data:
    with torch.no_grad():
        wanted = teacher(x)
```

## Fixed
```python
teacher.load_state_dict(torch.load("teacher.pt"))
teacher.eval()
for x, y in data:
    with torch.no_grad():
        wanted = teacher(x)
```

## What looks like it and is fine
An average that follows the trained network, as in Mean Teacher, BYOL and MoCo, which often runs in training mode; a
network that is run several times on one batch for its randomness; a network that is trained in other steps.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = ("running-frozen-batch-norm",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""
_FEWEST = 4


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for each in model_facts.fixed_networks:
        if each.updates >= _FEWEST:
            yield Finding(
                check="teacher-in-training-mode",
                severity="warning",
                seen=f"{each.name} ran before {each.updates} updates in training mode, and its weights never changed: "
                f"{', '.join(each.active[:3])}",
                where=each.name,
                why="its answers are random or depend on the batch, and training learns from them",
                remedy=f"call eval() on {each.name} once, before training",
            )
