"""Tests whether a model's output for one sample depends on the rest of the batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.rerun import CHANGED, Again, moved, other, redrawn
from surefoot.checks.facts.models import LEAKS
from surefoot.checks.loop.modes import is_batch_norm
from surefoot.checks.models.batch_dimension import OVER_TIME, in_one_row

_LITTLE = 1e-2
"""If a sample changes by this share, routing, selection and sorting stay as they were."""


@dataclass(frozen=True)
class Batches:
    """What is known of the batches of a loop."""

    drawn: Callable[[int], bool]
    """Are the samples of batches of this size drawn one by one?"""
    aimed: frozenset[str] = frozenset()
    """Models whose outputs are compared with varying targets, also by handwritten losses."""


def mixing(again: Again, place: int, base: list[torch.Tensor], dim: int) -> tuple[float, float]:
    """How much one sample changes the outputs of other samples, and its own."""
    inputs = again.inputs[place]
    one = inputs.select(dim, 0)
    of_one = [other(one, 3)] if inputs.is_floating_point() else [redrawn(one, inputs, 3), inputs.select(dim, -1)]
    return _after(again, place, base, dim, of_one)


def _after(
    again: Again, place: int, base: list[torch.Tensor], dim: int, of_one: list[torch.Tensor]
) -> tuple[float, float]:
    """The same, for the first replacement of a sample that the model accepts."""
    inputs = again.inputs[place]
    ways = [torch.cat([each.unsqueeze(dim), inputs.narrow(dim, 1, inputs.shape[dim] - 1)], dim) for each in of_one]
    others = own = 0.0
    after = first_that_runs(again, place, ways, {})
    for n in again.call.used_places() if after and len(base) == len(again.call.outputs) else range(len(base)):
        by = _by_sample(base[n], (after or base)[n], inputs, dim)
        if by is not None:
            others, own = max(others, float(_of_others(by).max())), max(own, float(by[:1].max()))
    return others, own


def _by_sample(before: torch.Tensor, after: torch.Tensor, inputs: torch.Tensor, dim: int) -> torch.Tensor | None:
    """How much an output changed, samples first; None if it does not have one row per sample."""
    if inputs.dim() == before.dim() == 2 and before.shape == after.shape and before.shape[0] == inputs.numel():
        before, after = before.view(*inputs.shape, -1), after.view(*inputs.shape, -1)
    if before.shape != after.shape or before.dim() <= dim or before.shape[dim] != inputs.shape[dim]:
        return None
    return moved(before, after).transpose(0, dim)


def _of_others(by: torch.Tensor) -> torch.Tensor:
    """The rows of other samples. In a samples-by-samples output, also without the column of the first sample."""
    square = by.dim() >= 2 and by.shape[1] == by.shape[0] > 2
    return by[1:, 1:] if square else by[1:]


def first_that_runs(
    again: Again, place: int, ways: list[torch.Tensor], changed: dict[int, torch.Tensor]
) -> list[torch.Tensor] | None:
    """The outputs for the first replacement that a model accepts. A column may allow only a few numbers."""
    for new in ways:
        if not torch.equal(new, again.inputs[place]):
            with suppress(IndexError):
                return again({**changed, place: new})
    return None


def may_be_meant(
    again: Again, place: int, base: list[torch.Tensor], mixed: float, *, drawn: bool, taught: bool
) -> bool:
    """Can it be intended that samples affect each other?

    Batch statistics, sets and comparisons treat all samples alike. They are wrong only for samples that were drawn
    at random and have their own targets. If the order of rows matters, they may be the steps of one sequence.
    """
    inputs = again.inputs[place]
    rows = len(inputs)
    if not rows_stay(again, base, rows) or _is_context(again, place, base) or _is_by_choice(again, place, base):
        return True
    if _is_alike_in_any_order(again, base, rows, mixed):
        norms = filter(is_batch_norm, again.model.modules())
        on_purpose = any(not each.track_running_stats for each in norms) or in_one_row(again, rows)
        return on_purpose or not (drawn and taught)
    if drawn:
        return False
    over_time = any(isinstance(each, OVER_TIME) for each in again.model.modules())
    return inputs.dim() < (3 if inputs.is_floating_point() else 2) or (inputs.dim() > 3 and over_time)


def _of_rows(again: Again, rows: int) -> dict[int, torch.Tensor]:
    return {n: each for n, each in enumerate(again.inputs) if each.dim() and len(each) == rows}


def rows_stay(again: Again, base: list[torch.Tensor], rows: int) -> bool:
    """Does an output lose a row when the inputs do? If not, the sizes are equal by chance."""
    with attempt("leaving out one sample"):
        less = again({n: each[:-1] for n, each in _of_rows(again, rows).items()})
        pairs = zip(base, less, strict=True)
        return any((a.dim() and a.numel() * (rows - 1) == b.numel() * rows) or _is_square_less(a, b) for a, b in pairs)
    return True


def _is_square_less(before: torch.Tensor, after: torch.Tensor) -> bool:
    return before.dim() >= 2 and after.dim() >= 2 and before.shape[0] == before.shape[1] == after.shape[0] + 1


def _is_context(again: Again, place: int, base: list[torch.Tensor]) -> bool:
    """Is there another input of the same shape that the outputs belong to, like queries?"""
    inputs = again.inputs[place]
    beside = [n for n, each in enumerate(again.inputs) if n != place and each.shape == inputs.shape]
    found = (mixing(again, n, base, 0) for n in beside if again.inputs[n].is_floating_point())
    return any(others < LEAKS < own for others, own in found)


def _is_by_choice(again: Again, place: int, base: list[torch.Tensor]) -> bool:
    """Do other outputs stay exactly the same when a sample changes a little? Then samples only compete for places."""
    inputs = again.inputs[place]
    if not inputs.is_floating_point():
        return False
    others, own = _after(again, place, base, 0, [inputs[0] * (1 + _LITTLE) + _LITTLE * inputs.std()])
    return others == 0.0 < own


def _is_alike_in_any_order(again: Again, base: list[torch.Tensor], rows: int, mixed: float) -> bool:
    """Do reordered samples give the same outputs in the new order?"""
    order = torch.randperm(rows, device="cpu", generator=torch.Generator().manual_seed(7))
    with attempt("putting samples into another order"):
        after = again({n: each[order] for n, each in _of_rows(again, rows).items()})
        for a, b in zip(base, after, strict=True):
            if a.dim() and len(a) == rows:
                square = a.dim() >= 2 and a.shape[1] == rows
                wanted = a[order][:, order] if square else a[order]
                near = float(moved(wanted, b).max()) < min(CHANGED, mixed / 10)
                if not near and not (square and float(moved(a[order], b).max()) < min(CHANGED, mixed / 10)):
                    return False
        return True
    return False


def relates(again: Again, place: int) -> bool:
    """Do inputs, or tensors of the model, relate samples to each other, like the edges of a graph?"""
    inputs = again.inputs[place]
    beside = [each for n, each in enumerate(again.inputs) if n != place]
    edges = any(_is_square(each, len(inputs)) or _points_at_rows(each, inputs) for each in beside)
    return edges or any(
        _is_square(each, len(inputs)) or _are_pairs(each) for each in _held(again.model) if each.dim() == 2
    )


def _is_square(each: torch.Tensor, rows: int) -> bool:
    return each.is_sparse or (each.dim() >= 2 and each.shape[0] == each.shape[1] == rows)


def _are_pairs(each: torch.Tensor) -> bool:
    return each.dim() == 2 and each.shape[0] == 2 and not each.is_floating_point() and each.dtype != torch.bool


def _points_at_rows(each: torch.Tensor, inputs: torch.Tensor) -> bool:
    """Are these row numbers: pairs of them, or a number other than one per row?"""
    if _are_pairs(each):
        return True
    if each.is_floating_point() or each.dtype == torch.bool or not each.dim() or each.numel() < 2:
        return False
    inside = int(each.min()) >= 0 and int(each.max()) < len(inputs)
    return inside and inputs.is_floating_point() and (len(each) != len(inputs) or each.dim() == 2)


def _held(model: nn.Module) -> list[torch.Tensor]:
    """Buffers and plain tensors of a model."""
    plain = [each for module in model.modules() for each in vars(module).values() if isinstance(each, torch.Tensor)]
    return [*model.buffers(), *plain]
