"""update-without-effect

## What it does
Reports an optimizer that changes none of its parameters although they have gradients and a learning rate.

## Why it hurts
The step is computed and lost: the rate is too small for the precision of the weights, a hook undoes it, or a kernel
writes to a copy.

## Buggy
```python
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
```

## Fixed
```python
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
```

## What looks like it and is fine
A warm-up that starts at zero; single weights that do not move.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    for number, optimizer in enumerate(loop_facts.optimizers):
        looked = [
            each for each in loop_facts.updates if each.optimizer == number and each.moved is not None and each.rate
        ]
        if len(looked) >= 2 and not any(update.moved for update in looked) and not looked[0].half:
            yield Finding(
                check="update-without-effect",
                severity="error",
                seen=f"{counted(len(looked), 'update')} of {optimizer.kind} with gradients and a rate of "
                f"{looked[0].rate:.3g} changed no weight",
                where=looked[0].where or "the recipe's optimizer",
                why="the step is lost: too small for the precision of the weights, undone, or written to a copy",
                remedy="raise the learning rate; look for hooks that write to the weights",
            )
