"""Measures the loss of a step on some of its samples, without taking it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch

from surefoot.step import Step
from surefoot.techniques.clip import total_norm
from surefoot.training.replay import Numbered, buffers_kept
from surefoot.trees import map_tensors, tensors_in

Unit = tuple[int, int]
"""A micro-batch and a sample in it; -1 for all of its samples, if they cannot be taken apart."""


def loss_on(step: Step, batches: Sequence[Numbered], units: Collection[Unit] | None = None) -> float:
    """The loss of a step on these samples; NaN if there are none."""
    return _run(step, batches, units, gradients=False)[0]


def norm_on(step: Step, batches: Sequence[Numbered], units: Collection[Unit] | None = None) -> float:
    """The norm of its gradients before clipping."""
    return _run(step, batches, units, gradients=True)[1]


def units_of(batches: Sequence[Numbered]) -> list[Unit]:
    """What can be left out of a step: single samples, or whole micro-batches if tensors do not begin with them."""
    return [
        (place, row)
        for place, (samples, batch) in enumerate(batches)
        for row in (range(len(samples)) if _is_rows(batch, len(samples)) else (-1,))
    ]


def samples_of(batches: Sequence[Numbered], units: Sequence[Unit]) -> list[int]:
    """The sample numbers of units."""
    return [number for place, row in units for number in (batches[place][0] if row < 0 else [batches[place][0][row]])]


def rows_of(batch: Any, rows: list[int]) -> Any:
    """Some samples of a micro-batch."""
    return map_tensors(lambda each: each[torch.tensor(rows, device=each.device)], batch)


def _is_rows(batch: Any, count: int) -> bool:
    """Whether every tensor holds one row for each sample."""
    tensors = list(tensors_in(batch))
    return count > 1 and bool(tensors) and all(each.dim() > 0 and len(each) == count for each in tensors)


def _run(
    step: Step, batches: Sequence[Numbered], units: Collection[Unit] | None, *, gradients: bool
) -> tuple[float, float]:
    """Loss and gradient norm. The loss of all samples has the bits of the step's own."""
    total: torch.Tensor | None = None
    count: torch.Tensor | int = 0
    with torch.set_grad_enabled(gradients), buffers_kept(step):
        for place, (_, batch) in enumerate(batches):
            rows = None if units is None else sorted(row for at, row in units if at == place)
            if rows == []:
                continue
            loss, counted = step.loss_of(place, batch if rows is None or rows == [-1] else rows_of(batch, rows))
            total = loss.detach() if total is None else total + loss.detach()
            count = count + counted
            if gradients:
                step.scaler.scale(loss).backward()
    if total is None:
        return math.nan, math.nan
    norm = math.nan
    if gradients:
        norm = total_norm([each.grad for each in step.parameters if each.grad is not None]).item()
        norm /= float(count) * step.scaler.get_scale()
        step.optimizer.zero_grad(set_to_none=True)
    return (total / count).item(), norm
