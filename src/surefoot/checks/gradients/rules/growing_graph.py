"""growing-graph

## What it does
Reports a loss whose graph grows with every step although the inputs keep their shape.

## Why it hurts
A state that is carried over without `detach()` ties every step to all steps before it: each backward takes more time
and memory than the last.

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
Inputs of varying length; curricula, for example a model that is unrolled for more and more steps: nothing in their
graphs was made before an earlier update.
"""

import itertools
from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

EXPLAINS = ("kept-losses",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    by_line: dict[tuple[str, object], list[int]] = {}
    tied: set[tuple[str, object]] = set()
    old: dict[str, list[int]] = {}
    for backward in loop_facts.backwards:
        by_line.setdefault((backward.where, backward.shapes), []).append(backward.nodes)
        if backward.old_nodes or not loop_facts.updates:
            tied.add((backward.where, backward.shapes))
        old.setdefault(backward.where, []).append(backward.old_nodes)
    for (where, shapes), nodes in by_line.items():
        if (
            (where, shapes) in tied
            and len(nodes) >= 4
            and _longest_growth(nodes) == nodes
            and nodes[-1] >= 1.5 * nodes[0]
        ):
            yield _finding(where, nodes, "nodes", "on inputs of one shape")
            return
    for where, nodes in old.items():
        grown = _longest_growth([count for count, _ in itertools.groupby(nodes)])
        if len(grown) >= 4:
            yield _finding(where, grown, "nodes of earlier updates", "on one line")
            return


def _longest_growth(counts: list[int]) -> list[int]:
    """The longest stretch in which every count is above the one before."""
    longest: list[int] = []
    growth: list[int] = []
    for count in counts:
        growth = [*growth, count] if growth and count > growth[-1] else [count]
        longest = max(longest, growth, key=len)
    return longest


def _finding(where: str, grown: list[int], what: str, of: str) -> Finding:
    return Finding(
        check="growing-graph",
        severity="error",
        seen=f"the graph grew from {grown[0]:,} to {grown[-1]:,} {what} over {len(grown)} backward calls {of}",
        where=where or "the recipe's loss",
        why="every step is tied to all steps before it: time and memory grow until the run dies",
        remedy="detach the state that is carried over: hidden = hidden.detach()",
    )
