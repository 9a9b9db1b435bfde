"""rate-too-large-for-adam

## What it does
Reports an optimizer of the Adam family whose learning rate is 0.1 or more, on a model of a thousand weights or more.

## Why it hurts
Adam divides each gradient by its size, so it moves every weight by about the learning rate. Initial weights of a
layer with a hundred inputs lie within 0.1: one such update replaces them. The rate is often left over from SGD.

## Buggy
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
```

## Fixed
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
```

## What looks like it and is fine
A few numbers that are fitted with a large rate, or a rate that a schedule multiplies by a small factor.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

_KINDS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
_LARGE = 0.1
_FEWEST = 1000


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    trained = sum(each.elements for each in model_facts.parameters if each.optimized and each.trainable)
    for number, optimizer in enumerate(loop_facts.optimizers):
        updates = [update for update in loop_facts.updates if update.optimizer == number]
        if optimizer.kind in _KINDS and optimizer.of_models and trained >= _FEWEST and len(updates) >= 2:
            rate = min(update.rate for update in updates)
            if rate >= _LARGE:
                yield Finding(
                    check="rate-too-large-for-adam",
                    severity="warning",
                    seen=f"{optimizer.kind} has a learning rate of {rate:g} in all {len(updates)} updates",
                    where=updates[0].where or "the recipe's optimizer",
                    why="it moves every weight by about that much, which is as large as the weights themselves",
                    remedy="start with 1e-3 or less; `surefoot check RECIPE --lr-range` finds the largest that works",
                )
