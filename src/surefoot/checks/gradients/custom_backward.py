"""Compares the backward of a custom autograd.Function with finite differences of its forward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.scene import tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.gradients import Derivative
from surefoot.events.phases import Phases
from surefoot.randomness import kept

_STEP = 1e-5
_SMOOTH = 1e-3
"""A derivative exists if differences with two step sizes agree to this share."""


def derivatives_of(calls: dict[Any, Args], phases: Phases) -> Iterator[Derivative]:
    """Compares each function's backward with a step in a random direction. Skips functions that cannot be run."""
    for kind, args in calls.items():
        with phases.deaf(), kept(), torch.enable_grad():
            torch.manual_seed(0)
            share = None
            with attempt(f"calling {kind.__name__} again"):
                share = _share(kind, args)
        if share is not None:
            yield Derivative(kind.__name__, share)


def _share(kind: Any, args: Args) -> float | None:
    """The share of the change from a small step that backward predicts; None if there is nothing to compare."""
    wide = [_widened(each) for each in args]
    graded = [each for each in wide if isinstance(each, torch.Tensor) and each.requires_grad]
    ways = [torch.randn_like(each) for each in graded]
    outs = list(tensors(kind.apply(*wide)))
    places = [place for place, each in enumerate(outs) if each.requires_grad]  # others may be marked as constants
    before = [outs[place] for place in places]
    if not before or any(out.shape == each.shape and torch.equal(out, each) for out in before for each in graded):
        return None  # an identity exists for its backward
    towards = {place: torch.randn_like(outs[place]) for place in places}
    slopes = torch.autograd.grad(before, graded, list(towards.values()), allow_unused=True)
    told = sum(float((slope * way).sum()) for slope, way in zip(slopes, ways, strict=True) if slope is not None)
    seen = [_difference(kind, wide, graded, ways, towards, size) for size in (_STEP, 3 * _STEP)]
    if abs(seen[0]) < 1e-6 or abs(seen[1] / seen[0] - 1) > _SMOOTH:
        return None  # flat or with jumps, like rounding: its backward replaces a derivative
    return told / seen[0]


def _difference(
    kind: Any, args: list[Any], graded: list[Any], ways: list[Any], towards: dict[int, Any], size: float
) -> float:
    """How the outputs change along a direction, with the weights that were used for the gradients."""
    ends = []
    for sign in (1, -1):
        moved = {id(each): each.detach() + sign * size * way for each, way in zip(graded, ways, strict=True)}
        outs = list(tensors(kind.apply(*(moved.get(id(each), each) for each in args))))
        ends.append(sum(float((outs[place] * weight).sum()) for place, weight in towards.items()))
    return (ends[0] - ends[1]) / (2 * size)


def _widened(value: object) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value
