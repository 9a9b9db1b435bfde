"""Metrics: sums and counts over micro-batches and ranks, so that no figure depends on how the data was split."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch

from surefoot.recipe.returned import is_stateful
from surefoot.world.device import wide

if TYPE_CHECKING:
    from surefoot.world.world import World


class Totals:
    """Adds up the metrics of micro-batches. Every rank has one and makes the same calls.

    A metric is a sum and a count, added in float64, or a torchmetrics object that has seen its micro-batch: those
    are merged. Counts of whole numbers up to 2 ** 53 add up exactly in any order.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Any, Any]] = {}
        self._merged: dict[str, Any] = {}

    def add(self, metrics: Mapping[str, Any], *, counts: bool = True) -> None:
        """Adds the metrics of one micro-batch. One that does not count only names its metrics."""
        for name, value in metrics.items():
            if is_stateful(value):
                self._merge(name, value, counts)
            else:
                before = self._sums.get(name, (0.0, 0.0))
                part = tuple(_double(each) * counts for each in value)
                self._sums[name] = (before[0] + part[0], before[1] + part[1])

    def _merge(self, name: str, value: Any, counts: bool) -> None:
        if name not in self._merged:
            self._merged[name] = deepcopy(value)
            if not counts:
                self._merged[name].reset()
        elif counts:
            self._merged[name].merge_state(value)

    def over_ranks(self, world: World, *, speaks: bool) -> dict[str, torch.Tensor]:
        """Each metric over all ranks. Only ranks that speak are counted, so no share of the data counts twice."""
        found: dict[str, torch.Tensor] = {}
        if self._sums:
            totals = world.sum(*(each * speaks for pair in self._sums.values() for each in pair))
            for name, total, count in zip(self._sums, totals[::2], totals[1::2], strict=True):
                found[name] = total / count
        for name, metric in self._merged.items():
            if not speaks:
                metric.reset()
            found[name] = metric.compute()  # it gathers over the ranks by itself
        return found


def _double(number: Any) -> Any:
    return wide(number.detach()) if isinstance(number, torch.Tensor) else float(number)
