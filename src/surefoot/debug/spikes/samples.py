"""Finds the few samples of a step without which its loss is ordinary, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from surefoot.debug.spikes.measure import Unit, rows_of
from surefoot.training.replay import Numbered
from surefoot.trees import tensors_in
from surefoot.world.device import wide

MOST_SHARE = 0.25
"""If more of a batch must be left out, the spike is not that of single samples."""
FAR = 10
"""Numbers are far from those of other samples if they are so many times as large."""
Measure = Callable[[Sequence[Unit]], float]


def guilty(
    units: list[Unit], measure: Measure, is_ordinary: Callable[[float], bool]
) -> tuple[list[Unit], float] | None:
    """The fewest units to leave out, worst first, and the loss without them; None if a few do not suffice.

    Each is found by bisection: of two halves of what is left, the one with the larger loss, down to one unit.
    """
    left, out = list(units), list[Unit]()
    for _ in range(max(1, int(MOST_SHARE * len(units)))):
        if len(left) < 2:
            return None
        worst = _worst(left, measure)
        left.remove(worst)
        out.append(worst)
        loss = measure(left)
        if is_ordinary(loss):
            return out, loss
    return None


def _worst(left: list[Unit], measure: Measure) -> Unit:
    group = left
    while len(group) > 1:
        halves = group[: len(group) // 2], group[len(group) // 2 :]
        try:
            scores = [_size(measure(half)) for half in halves]
        except (ValueError, RuntimeError):  # a batch norm needs two samples: see what is left without each half
            scores = [-_size(measure([each for each in left if each not in half])) for half in halves]
        group = halves[scores[1] > scores[0]]
    return group[0]


def _size(loss: float) -> float:
    return math.inf if math.isnan(loss) else loss


def described(batches: Sequence[Numbered], units: list[Unit]) -> str:
    """Whether the numbers of these samples are far larger than those of the others in their step."""
    theirs = others = 0.0
    for place, (samples, batch) in enumerate(batches):
        bad = {row for at, row in units if at == place}
        if -1 in bad:
            return ""
        mine, rest = sorted(bad), [row for row in range(len(samples)) if row not in bad]
        theirs, others = max(theirs, _largest(batch, mine)), max(others, _largest(batch, rest))
    if not theirs <= FAR * others:
        return f"their largest number is {theirs:.3g}, that of the other samples {others:.3g}"
    return "their numbers are no larger than those of the others: look at their labels and content"


def _largest(batch: object, rows: list[int]) -> float:
    numbers = [each for each in tensors_in(rows_of(batch, rows)) if each.is_floating_point()] if rows else []
    return max((wide(each.abs()).nan_to_num(torch.inf).max().item() for each in numbers if each.numel()), default=0.0)
