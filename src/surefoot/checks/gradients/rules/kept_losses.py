"""kept-losses

## What it does
Reports back-propagated graphs from long past steps that still exist because something keeps their loss, or another
tensor attached to them.

## Why it hurts
A loss in a list keeps its graph: memory grows with every step until a long run dies.

## Buggy
```python
losses.append(loss)
```

## Fixed
```python
losses.append(loss.item())
```

## What looks like it and is fine
The loss of the last step in a variable; windows of truncated back-propagation; trajectories that are still
to be back-propagated.
"""

from collections.abc import Iterator

from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, gradient_facts: GradientFacts) -> Iterator[Finding]:
    if gradient_facts.kept_graphs >= 2:
        yield Finding(
            check="kept-losses",
            severity="warning",
            seen=f"{gradient_facts.kept_graphs} graphs from three or more updates ago still exist "
            f"after {len(loop_facts.updates)} updates",
            where=loop_facts.backwards[0].where or "the loop",
            why="every kept loss keeps its graph, so memory grows with every step",
            remedy="keep loss.item() or loss.detach()",
        )
