"""unused-average

## What it does
Reports an average of weights that is kept up to date but never evaluated, saved or copied, while the trained network
is evaluated or saved with its own weights.

## Why it hurts
You report and keep the last weights, not the average that you pay for in every step.

## Buggy
```python
ema.update(model)
...
accuracy = evaluate(model)
```

## Fixed
```python
ema.update(model)
...
accuracy = evaluate(ema.module)
```

## What looks like it and is fine
Weights that are exchanged for an evaluation and put back; an average that is only saved; a target network, which is
called in every step. Scripts of more than 100 updates are not judged.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

_FEWEST = 4
_WHOLE = 0.9
"""Weights that are taken over whole are a copy, for example to return to, and no average."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    for each in model_facts.shadows if loop_facts.ended else ():
        averages = len(each.shares) >= _FEWEST and sorted(each.shares)[len(each.shares) // 2] < _WHOLE
        if averages and each.raw and not each.used and not each.aliased:
            yield Finding(
                check="unused-average",
                severity="info",
                seen=f"{each.name} followed {each.source} through {len(each.shares)} updates, but only {each.source} "
                "was evaluated or saved",
                where=each.name,
                why="the average is computed in every step and never used",
                remedy=f"evaluate and save {each.name}, or delete it",
            )
