"""detached-layers

## What it does
Reports layers that run in forward, are held by an optimizer, and never receive a gradient from what they give
although the loss depends on them; and what is drawn by `sample()` from a distribution that a model made, and goes on
into the loss.

## Why it hurts
The graph is cut behind them by `.detach()`, `.data`, `no_grad`, NumPy, or reentrant checkpointing of an
input without gradient. They keep their initial values while the layers behind them learn to live with that.

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
Frozen layers; layers in evaluation mode inside of a model in training mode, which only give features; experts that
were not chosen; layers whose result nobody uses; a stop-gradient branch whose layers have another path; weights that
are moved by hand, as a moving average is; samples whose `log_prob` is asked for, as policy gradients do.
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
            seen="what a model's distribution gives is drawn by sample(), and goes on into the loss without a gradient",
            where=line,
            why="what made the distribution learns nothing of what is made from its samples",
            remedy="draw with rsample(); sample() is for losses that use log_prob of what was drawn",
        )
        return
    if not cut or len(loop_facts.updates) < 2:
        return
    names = [each.name for each in cut]
    yield Finding(
        check="detached-layers",
        severity="warning",
        seen=f"{len(cut)} parameters with {sum(each.elements for each in cut):,} elements change what the loss is made "
        f"from and never receive a gradient: {', '.join(names[:3])}" + (", ..." if len(names) > 3 else ""),
        where=names[-1].rpartition(".")[0] or cut[0].model,
        why="the graph is cut behind them, so they keep their initial values",
        remedy="look behind them for .detach(), .data, no_grad, NumPy or checkpoint(..., use_reentrant=True)",
    )
