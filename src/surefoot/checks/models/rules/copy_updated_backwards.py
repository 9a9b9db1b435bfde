"""copy-updated-backwards

## What it does
Reports an average or target that takes almost all of the trained network's weights at every update, and a trained
network that is overwritten with the weights of its copy.

## Why it hurts
`ema = (1 - decay) * ema + decay * model` with a decay of 0.999 keeps the last weights instead of an average. A
trained network that is pulled back to its target loses what it has learned.

## Buggy
```python
ema.lerp_(weight, 0.999)
```

## Fixed
```python
ema.lerp_(weight, 1 - 0.999)
```

## What looks like it and is fine
Whole copies, as of an old policy; a decay that warms up; slow and fast weights that meet every few updates; weights
that are exchanged for an evaluation and put back.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts, Shadow
from surefoot.records.finding import Finding

EXPLAINS = ("copy-never-updated", "unused-average")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""
_ALMOST_ALL, _ALL = 0.895, 1 - 1e-5
_FEWEST = 4
_CONSTANT = 0.01


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    apart = [each for each in model_facts.shadows if not each.aliased]
    for each in [each for each in apart if _is_swapped(each)][:1]:
        share = sorted(each.shares)[len(each.shares) // 2]
        yield Finding(
            check="copy-updated-backwards",
            severity="warning",
            seen=f"{each.name} takes {share:.4g} of {each.source} at each of {len(each.shares)} updates and keeps "
            f"{1 - share:.2g} of itself",
            where=each.name,
            why="it is nearly the same network: it averages and delays nothing",
            remedy=f"exchange the two factors: keep {share:.4g} of {each.name} and take {1 - share:.2g} of "
            f"{each.source}",
        )
    for each in [each for each in apart if _is_undone(each)][:1]:
        yield Finding(
            check="copy-updated-backwards",
            severity="warning",
            seen=f"{each.source} was overwritten with weights of {each.name} between updates, {each.pulls} times; "
            f"{each.name} never changed",
            where=each.source,
            why="training is undone: the trained network is pulled back to its copy",
            remedy=f"update {each.name} from {each.source}, not the other way round",
        )


def _is_undone(shadow: Shadow) -> bool:
    """Does the trained network return to a copy that is used and stays as it is?"""
    return shadow.pulls >= 2 and shadow.never_changed and (shadow.follows or shadow.calls >= 2)


def _is_swapped(shadow: Shadow) -> bool:
    """Is the share of the trained network constant, almost one, and not one?"""
    shares = shadow.shares
    if len(shares) < _FEWEST or shadow.elsewhere > len(shares) / 4:
        return False
    return min(shares) >= _ALMOST_ALL and max(shares) < _ALL and max(shares) - min(shares) <= _CONSTANT
