"""Gathers the facts: observers hand over what they saw, and then what probes of copies show."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim import Optimizer

from surefoot.checks.engine.bus import Bus
from surefoot.checks.engine.living import living
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held
from surefoot.checks.facts import Facts, merged


def gathered(scene: Scene, bus: Bus, observers: Iterable[Observer], *, probes: bool) -> Facts:
    """Collects the facts seen so far. With `probes`, also disturbs copies of models and data sets.

    Each step needs the one before. Observers settle once all optimizers are known, because they ask which parameters
    one holds. They hand over facts once all have settled, because one may read what another has counted. Probes come
    last: what they try, and what it means, depends on what was seen, for example on the evaluations.
    """
    observers = list(observers)
    if probes:
        _find_optimizers(scene)
    bus.settle()
    parts = [part for each in observers for part in each.facts()]
    if probes:
        parts += [part for each in observers for part in each.probed()]
    return merged(parts)


def _find_optimizers(scene: Scene) -> None:
    """Finds optimizers that hold parameters of models that ran, even if they never made an update."""
    known = {*scene.reached, *scene.names()}
    for each in living(Optimizer):
        if each not in scene.optimizers and known.intersection(held(each)):
            scene.optimizers.append(each)
