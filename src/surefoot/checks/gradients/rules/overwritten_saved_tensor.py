"""overwritten-saved-tensor

## What it does
Reports parameters and inputs that change between a forward and its backward without autograd noticing, and tensors of
the graph that are written to through `.data`.

## Why it hurts
Autograd saved a reference to the weight. After a change through `.data`, the gradient is computed with a value that
the forward never used. No error is raised, because `.data` does not count as a write.

## Buggy
```python
loss = criterion(model(x), y)
model.head.weight.data.mul_(0.9)
loss.backward()
```

## Fixed
```python
loss = criterion(model(x), y)
loss.backward()
with torch.no_grad():
    model.head.weight.mul_(0.9)
```

## What looks like it and is fine
Weights that are clipped or averaged after the update, or that no gradient goes through, like those of a slow copy;
optimizers that run inside the backward; images that are scaled through `.data` after the backward, to save them.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = ("detached-layers",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts, gradient_facts: GradientFacts) -> Iterator[Finding]:
    spoilt = [forward for forward in loop_facts.forwards if forward.overwritten]
    if gradient_facts.written_through_data:
        yield Finding(
            check="overwritten-saved-tensor",
            severity="warning",
            seen="a tensor of the graph is written to through its .data before the backward",
            where=gradient_facts.written_through_data[0],
            why="autograd does not see the write: it has no gradient, and saved values are no longer right",
            remedy="write x = x + y instead of x.data.add_(y)",
        )
    elif spoilt:
        names = spoilt[0].overwritten
        yield Finding(
            check="overwritten-saved-tensor",
            severity="error",
            seen=f"in {len(spoilt)} of {len(loop_facts.forwards)} forward calls, {counted(len(names), 'tensor')} "
            f"changed before the backward, for example {names[0]}",
            where=names[0],
            why="the gradient is computed with values that the forward never used",
            remedy="change weights after backward, under no_grad, not through .data; give each forward an array of "
            "its own",
        )
