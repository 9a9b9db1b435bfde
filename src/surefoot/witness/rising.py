"""Rising: targets that grow from batch to batch, so that no two batches have the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

_FEWEST = 6
"""So many batches in a row, each above the last. Shuffled ones never lie so."""
_MOST_FEATURES = 4096


@dataclass
class _Batch:
    """The least and the largest number of a batch, of its targets first and then of every input."""

    lows: torch.Tensor
    highs: torch.Tensor


class Rising:
    """Batches of the losses of each line, in the order in which they are trained on."""

    def __init__(self) -> None:
        self._batches: dict[str, list[_Batch]] = {}

    def see(self, where: str, inputs: list[torch.Tensor], target: torch.Tensor) -> None:
        """A batch of numbers, one for each sample, beside what entered the model."""
        if not target.is_floating_point() or target.numel() != len(target):
            return
        rows = [each.reshape(len(each), -1) for each in (target, *inputs)]
        columns = torch.cat([each.double() for each in rows if each.shape[1] <= _MOST_FEATURES], 1)
        self._batches.setdefault(where, []).append(_Batch(columns.amin(0), columns.amax(0)))

    def lines(self) -> Iterator[tuple[str, int]]:
        """Lines whose targets rise or fall from batch to batch while no input does, and through how many batches."""
        for where, batches in self._batches.items():
            if len({each.lows.shape for each in batches}) == 1:
                count = max(_longest(batches), _longest(batches[::-1]))
                if count >= _FEWEST:
                    yield where, count


def _longest(batches: list[_Batch]) -> int:
    """Through how many batches in a row targets rise; 0 where an input does, too, as a time does."""
    longest, begin = 0, 0
    for end in range(1, len(batches) + 1):
        if end == len(batches) or batches[end].lows[0] < batches[end - 1].highs[0]:
            run = batches[begin:end]
            longest = max(longest, len(run) if _varies(run) and not _inputs_rise(run) else 0)
            begin = end
    return longest


def _varies(run: list[_Batch]) -> bool:
    return sum(bool(each.lows[0] < each.highs[0]) for each in run) > len(run) / 2


def _inputs_rise(run: list[_Batch]) -> bool:
    lows, highs = torch.stack([each.lows[1:] for each in run]), torch.stack([each.highs[1:] for each in run])
    rise, fall = (lows[1:] >= highs[:-1]).all(0), (highs[1:] <= lows[:-1]).all(0)
    return bool(((rise | fall) & (lows.amin(0) < highs.amax(0))).any())
