"""zero-learning-rate

## What it does
Reports an optimizer whose learning rate is zero in every update seen.

## Why it hurts
Nothing moves. It happens when a schedule returns 0, as integer division does (`step // warmup`), or when a
warm-up never ends.

## Buggy
```python
LambdaLR(optimizer, lambda step: step // 1000)
```

## Fixed
```python
LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1000))
```

## What looks like it and is fine
A warm-up whose first update has a rate of zero.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for number, optimizer in enumerate(evidence.optimizers):
        updates = [update for update in evidence.updates if update.optimizer == number]
        if len(updates) >= 2 and all(update.rate == 0 for update in updates):
            yield Finding(
                check="zero-learning-rate",
                severity="error",
                seen=f"the learning rate of {optimizer.kind} is 0 in all {len(updates)} updates",
                where=updates[0].where or "the recipe's optimizer",
                why="no weight moves",
                remedy="give the optimizer a rate above zero; look at what the schedule returns for the first steps",
            )
