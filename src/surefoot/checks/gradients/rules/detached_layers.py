"""detached-layers

## What it does
Reports layers that run in forward, are held by an optimizer, and never receive a gradient through their output
although the loss depends on it. Also reports values drawn with `sample()` from a distribution that a model made, if
they enter the loss.

## Why it hurts
The graph is cut after them by `.detach()`, `.data`, `no_grad`, NumPy, or reentrant checkpointing of an input without
gradient. They keep their initial values, and the layers after them adapt to that.

## Buggy
```python
def forward(self, x):
    return self.head(self.body(x).detach())
```

## Fixed
```python
def forward(self, x):
    return self.head(self.body(x))
```

## What looks like it and is fine
Frozen layers; layers in evaluation mode inside a model in training mode, which only extract features; experts that
were not chosen; layers whose result nobody uses; a stop-gradient branch whose layers have another path; weights that
are updated by hand, for example as a moving average; samples whose `log_prob` is used, as in policy gradients.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, model_facts: ModelFacts, gradient_facts: GradientFacts) -> Iterator[Finding]:
    cut = [
        each
        for each in model_facts.parameters
        if each.in_loss
        and each.executed
        and each.trainable
        and each.optimized
        and (each.penalized or not each.reached)
        and not each.only_in
        and not each.moved
        and not each.resting
    ]
    for line in gradient_facts.drawn_without_gradient[:1]:
        yield Finding(
            check="detached-layers",
            severity="warning",
            seen="values drawn with sample() from a model's distribution enter the loss without a gradient",
            where=line,
            why="the layers that made the distribution learn nothing from its samples",
            remedy="draw with rsample(); use sample() only if the loss uses log_prob of the sample",
        )
        return
    if not cut or len(loop_facts.updates) < 2:
        return
    names = [each.name for each in cut]
    yield Finding(
        check="detached-layers",
        severity="warning",
        seen=f"{len(cut)} parameters with {sum(each.elements for each in cut):,} elements affect the loss but never "
        f"receive a gradient: {', '.join(names[:3])}" + (", ..." if len(names) > 3 else ""),
        where=names[-1].rpartition(".")[0] or cut[0].model,
        why="the graph is cut after them, so they keep their initial values",
        remedy="search after these layers for .detach(), .data, no_grad, NumPy or checkpoint(..., use_reentrant=True)",
    )
