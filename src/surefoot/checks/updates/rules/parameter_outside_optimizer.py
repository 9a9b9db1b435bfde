"""parameter-outside-optimizer

## What it does
Reports trainable parameters that receive gradients but are held by no optimizer.

## Why it hurts
Their gradients are computed, stored, and never used: that part of the model keeps its random initial values. It
happens when a layer is added, replaced or unfrozen after the optimizer was built, or when only
`model.head.parameters()` was passed on.

## Buggy
```python
optimizer = torch.optim.AdamW(model.parameters())
model.head = nn.Linear(512, 10)
```

## Fixed
```python
model.head = nn.Linear(512, 10)
optimizer = torch.optim.AdamW(model.parameters())
```

## What looks like it and is fine
Frozen parameters (`requires_grad=False`); several optimizers that share the parameters among them; weights that are
copied from those that an optimizer holds in another precision.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.gradients.rules.gradients_into_fixed_network import fixed_networks
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    fixed = fixed_networks(loop_facts, model_facts)
    outside = [
        each.name
        for each in model_facts.parameters
        if each.trainable and each.reached and not each.optimized and not each.moved and each.model not in fixed
    ]
    if outside and loop_facts.optimizers:
        yield Finding(
            check="parameter-outside-optimizer",
            severity="error",
            seen=(
                f"{len(outside)} of {len(model_facts.parameters)} parameters receive gradients that no optimizer uses: "
                + ", ".join(outside[:3])
                + (", ..." if len(outside) > 3 else "")
            ),
            where=outside[0].rpartition(".")[0] or outside[0],
            why="they keep their initial values; their gradients only cost memory",
            remedy="build the optimizer from all parameters after the model is complete, or freeze these",
        )
