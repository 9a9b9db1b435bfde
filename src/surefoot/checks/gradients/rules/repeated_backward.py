"""repeated-backward

## What it does
Reports a loss that is back-propagated twice before an update.

## Why it hurts
Its gradients are added twice, so the step is twice as large as the learning rate says.

## Buggy
```python
loss.backward(retain_graph=True)
clip(model)
loss.backward()
```

## Fixed
```python
loss.backward()
clip(model)
```

## What looks like it and is fine
Several losses of one graph, each back-propagated once; gradients taken with `torch.autograd.grad`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    again = [backward for backward in loop_facts.backwards if backward.repeated]
    if again:
        yield Finding(
            check="repeated-backward",
            severity="warning",
            seen=f"{len(again)} of {len(loop_facts.backwards)} backward calls started from a loss that was already "
            "back-propagated since the last update",
            where=again[0].where or "the recipe's loss",
            why="its gradients are added twice",
            remedy="call backward once per loss; retain_graph=True hints at a second call",
        )
