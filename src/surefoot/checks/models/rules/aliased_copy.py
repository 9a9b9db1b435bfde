"""aliased-copy

## What it does
Reports a target network, average or teacher that shares its memory with the network it was copied from.

## Why it hurts
`target = online` makes a second name, `copy.copy` copies only the outer object, and `p.data = q.data` joins two
tensors. Every update changes both. The target moves with the network that it should guide, and an average is the last
weights.

## Buggy
```python
target = online
```

## Fixed
```python
target = copy.deepcopy(online)
```

## What looks like it and is fine
Two names for one network, neither of which says `target`, `ema`, `teacher` or the like; one encoder that is shared by
a source and a target; weights that two layers of one network share.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = ("best-weights-by-reference",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for each in [each for each in model_facts.shadows if each.aliased and each.follows][:1]:
        yield Finding(
            check="aliased-copy",
            severity="warning",
            seen=f"{each.name} and {each.source} share their memory: every update changes both",
            where=each.name,
            why="the copy is the trained network itself, so it neither lags behind nor averages anything",
            remedy=f"make {each.name} with copy.deepcopy, and update it with copy_() or load_state_dict()",
        )
