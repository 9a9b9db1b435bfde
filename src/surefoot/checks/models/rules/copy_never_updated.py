"""copy-never-updated

## What it does
Reports a target network, average or teacher that starts as a copy of a trained network, is used, and still has its
first weights when the script ends.

## Why it hurts
The line that updates it is missing, comes after a `return`, or waits for a step that never comes. The target stays
as random as it began, and an average that is evaluated shows an untrained network.

## Buggy
```python
target = copy.deepcopy(online)
for batch in data:
    train(online, target, batch)
```

## Fixed
```python
target = copy.deepcopy(online)
for step, batch in enumerate(data):
    train(online, target, batch)
    if step % 50 == 0:
        target.load_state_dict(online.state_dict())
```

## What looks like it and is fine
A copy whose name says that it stays: `reference`, `frozen`, `initial`, `best` and the like; a teacher that was
trained before; a random target of another start, which is given the same inputs as the network that predicts it.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts, Shadow
from surefoot.records.finding import Finding

EXPLAINS = ("teacher-in-training-mode", "running-frozen-batch-norm")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""
_LONG = 10
"""A copy is expected to have changed after this many updates of the trained network."""


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    stale = [each for each in model_facts.shadows if each.never_changed and each.follows and _is_relied_on(each)]
    for each in stale[:1] if loop_facts.ended else ():
        yield Finding(
            check="copy-never-updated",
            severity="warning",
            seen=f"{each.name} was used after {each.source} was trained, but still has its first weights after "
            f"{each.apart} updates" + "".join(f"; so does {other.name}" for other in stale[1:]),
            where=each.name,
            why="it stays the untrained network that it began as",
            remedy=f"update {each.name} from {each.source} after each update, or every few updates",
        )


def _is_relied_on(shadow: Shadow) -> bool:
    """Is it used while training goes on or after, and not as a random network that another predicts?"""
    long = shadow.apart >= _LONG and shadow.calls >= 1
    return long and (shadow.copied or not shadow.same_inputs) and not shadow.pulls and not shadow.aliased
