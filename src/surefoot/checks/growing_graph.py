"""growing-graph

## What it does
Reports a loss whose graph grows with every step although the inputs keep their shape.

## Why it hurts
A state that is carried over without `detach()` ties every step to all steps before: each backward is longer
than the last, in time and memory.

## Buggy
```python
output, hidden = rnn(x, hidden)
loss.backward(retain_graph=True)
```

## Fixed
```python
output, hidden = rnn(x, hidden.detach())
loss.backward()
```

## What looks like it and is fine
Inputs of varying length; curricula.
"""

from collections.abc import Iterator
from itertools import pairwise

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    by_line: dict[tuple[str, object], list[int]] = {}
    for backward in evidence.backwards:
        by_line.setdefault((backward.where, backward.shapes), []).append(backward.nodes)
    for (where, _), nodes in by_line.items():
        grows = [b > a for a, b in pairwise(nodes)]
        if len(nodes) >= 4 and all(grows) and nodes[-1] >= 1.5 * nodes[0]:
            yield Finding(
                check="growing-graph",
                severity="error",
                seen=f"the graph grew from {nodes[0]:,} to {nodes[-1]:,} nodes over {len(nodes)} backwards of inputs "
                "of one shape",
                where=where or "the recipe's loss",
                why="every step is tied to all steps before it: time and memory grow until the run dies",
                remedy="detach the state that is carried over: hidden = hidden.detach()",
            )
            return
