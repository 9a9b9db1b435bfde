"""adapters-never-move

## What it does
Reports adapters, as LoRA has them, none of which changed although an optimizer made updates with a learning rate.

## Why it hurts
Something else is trained, or nothing: the adapters are frozen, switched off, or both of their matrices began at zero,
which gives both a gradient of zero for ever. The file with the adapters holds their first values.

## Buggy
```python
nn.init.zeros_(layer.lora_a)
nn.init.zeros_(layer.lora_b)
```

## Fixed
```python
nn.init.kaiming_uniform_(layer.lora_a, a=math.sqrt(5))
nn.init.zeros_(layer.lora_b)
```

## What looks like it and is fine
One of several adapters that is not active; adapters that were trained before and stay as they are; those of a teacher;
a warm-up whose first update has a rate of zero.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_UPDATES = 2
EXPLAINS = ("update-without-effect", "update-without-gradients", "detached-layers", "symmetric-initial-weights")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    moving = sum(update.rate > 0 for update in loop_facts.updates)
    for model in dict.fromkeys(each.model for each in model_facts.adapters):
        own = [each for each in model_facts.adapters if each.model == model]
        if not any(each.moved for each in own) and min(moving, own[0].updates) >= _UPDATES:
            yield Finding(
                check="adapters-never-move",
                severity="error",
                seen=f"none of {counted(len(own), 'adapter')} changed in {own[0].updates} updates: {own[0].name}"
                + (", ..." if len(own) > 1 else ""),
                where=own[0].name,
                why="what is trained is not the adapters, and their file holds their first values",
                remedy="look at requires_grad, at the optimizer's parameters, at whether the adapters are switched on, "
                "and that only one of the two matrices begins at zero",
            )
