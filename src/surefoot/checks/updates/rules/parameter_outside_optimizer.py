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

Parameters of a module that is not called as a model, for example an adapter in a hook, are a warning.

## What looks like it and is fine
Frozen parameters (`requires_grad=False`); several optimizers that share the parameters among them; weights that are
copied from those that an optimizer holds in another precision.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.gradients.rules.gradients_into_fixed_network import fixed_networks
from surefoot.records.finding import Finding

EXPLAINS = ("adapters-never-move",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    fixed = fixed_networks(loop_facts, model_facts)
    outside = [
        each.name
        for each in model_facts.parameters
        if each.trainable and each.reached and not each.optimized and not each.moved and each.model not in fixed
    ]
    beside = [
        leaf.registered
        for leaf in model_facts.leaves
        if leaf.registered and leaf.fixed and len(loop_facts.updates) >= 2
    ]
    if any(module.reached for module in model_facts.hidden_modules):
        beside = []  # `layers-in-plain-list` reports them
    lost = [*outside, *beside]
    if lost and loop_facts.optimizers:
        every = len(model_facts.parameters) + len(beside)
        yield Finding(
            check="parameter-outside-optimizer",
            severity="error" if outside else "warning",
            seen=f"{len(lost)} of {every} parameters receive gradients that no optimizer uses: "
            + ", ".join(lost[:3])
            + (", ..." if len(lost) > 3 else ""),
            where=lost[0].rpartition(".")[0] or lost[0],
            why="they keep their initial values; their gradients only cost memory",
            remedy="build the optimizer from all parameters after the model is complete, or freeze these",
        )
