"""rate-unusual-for-method

## What it does
Reports a learning rate of the Adam family that is more than a hundred times away from what fine-tuning usually takes:
2e-4 for adapters, 2e-5 for all weights of a model that came from a folder or repository.

## Why it hurts
All weights with the rate of training from scratch: what the model knew is overwritten within a few updates. Adapters
with a rate far below that of full fine-tuning: they hardly leave their first values.

## Buggy
```python
optimizer = torch.optim.AdamW(pretrained.parameters(), lr=1e-2)
```

## Fixed
```python
optimizer = torch.optim.AdamW(pretrained.parameters(), lr=2e-5)
```

## What looks like it and is fine
A new head on a frozen body; models with random weights; a warm-up that has not ended.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts, Update
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = ("rate-too-large-for-adam",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_USUAL = {"adapters": (1e-6, 2e-4, 2e-2), "all weights": (1e-8, 2e-5, 2e-3)}
"""The smallest, the usual and the largest rate. Preference losses take rates down to 1e-7 for all weights."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    for tuning in model_facts.tunings:
        updates = [update for update in loop_facts.updates if update.optimizer == tuning.optimizer]
        kind = loop_facts.optimizers[tuning.optimizer].kind
        if "Adam" not in kind or len(updates) < 2:
            continue
        low, usual, high = _USUAL[tuning.method]
        rate = max(update.rate for update in updates)
        if rate > high or 0 < _planned(updates) < low:
            size = "large" if rate > high else "small"
            yield Finding(
                check="rate-unusual-for-method",
                severity="warning",
                seen=f"{kind} trains {tuning.method} of {tuning.model} with a learning rate of "
                f"{rate if rate > high else _planned(updates):.3g}; usual is about {usual:g}",
                where=updates[0].where or "the recipe's optimizer",
                why="what the model knows is overwritten" if size == "large" else "the weights hardly move",
                remedy=f"start with {usual:g}; `surefoot check RECIPE --lr-range` finds the largest that works",
            )


def _planned(updates: list[Update]) -> float:
    """The largest rate that was used or planned."""
    return max(max(update.rate, update.planned_rate or 0.0) for update in updates)
