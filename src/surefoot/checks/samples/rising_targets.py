"""Finds targets that grow from batch to batch, as those of sorted data do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from surefoot.world.device import wide

_FEWEST = 6
"""At least this many batches in a row, each above the last. Shuffled batches never rise this long."""
_MOST_FEATURES = 4096


@dataclass
class _Batch:
    """The smallest and largest numbers of a batch: of its targets first, then of every input."""

    lows: torch.Tensor
    highs: torch.Tensor
    of_data: bool
    """A loader yielded exactly these targets."""


class Rising:
    """Batches by the line of their loss, in training order."""

    def __init__(self) -> None:
        self._batches: dict[str, list[_Batch]] = {}

    def see(self, where: str, inputs: list[torch.Tensor], target: torch.Tensor, *, of_data: bool) -> None:
        """Records a batch of targets, one number per sample, with the inputs of the model."""
        if not target.is_floating_point() or target.numel() != len(target):
            return
        rows = [each.reshape(len(each), -1) for each in (target, *inputs)]
        columns = torch.cat([wide(each) for each in rows if each.shape[1] <= _MOST_FEATURES], 1)
        self._batches.setdefault(where, []).append(_Batch(columns.amin(0), columns.amax(0), of_data))

    def lines(self) -> Iterator[tuple[str, int]]:
        """Lines whose targets rise or fall from batch to batch while no input does, and over how many batches."""
        for where, batches in self._batches.items():
            if len({each.lows.shape for each in batches}) == 1:
                runs = [run for run in _runs(batches) if len(run) >= _FEWEST and _varies(run) and not _inputs_rise(run)]
                count = max((len(run) for run in runs if _is_of_data(run, batches)), default=0)
                if count:
                    yield where, count


def _runs(batches: list[_Batch]) -> Iterator[list[_Batch]]:
    """Runs of batches whose targets are above those of the batch before, and runs whose targets are below."""
    for some in (batches, batches[::-1]):
        begin = 0
        for end in range(1, len(some) + 1):
            if end == len(some) or some[end].lows[0] < some[end - 1].highs[0]:
                yield some[begin:end]
                begin = end


def _is_of_data(run: list[_Batch], batches: list[_Batch]) -> bool:
    """Did a loader yield these targets, or do they come again? Targets from a learned value rise with it."""
    first = run[0].lows[0], run[0].highs[0]
    again = sum((each.lows[0], each.highs[0]) == first for each in batches) > 1
    return again or all(each.of_data for each in run)


def _varies(run: list[_Batch]) -> bool:
    return sum(bool(each.lows[0] < each.highs[0]) for each in run) > len(run) / 2


def _inputs_rise(run: list[_Batch]) -> bool:
    lows, highs = torch.stack([each.lows[1:] for each in run]), torch.stack([each.highs[1:] for each in run])
    rise, fall = (lows[1:] >= highs[:-1]).all(0), (highs[1:] <= lows[:-1]).all(0)
    return bool(((rise | fall) & (lows.amin(0) < highs.amax(0))).any())
