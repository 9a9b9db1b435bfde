"""Fingerprint: replicas of a model must hold the same bits. One that does not has met a fault that raises nothing.

Every so many steps, and before every save, each rank sums the bits of each of its parameters as integers and compares
with the ranks that hold the same. A flipped bit changes the sum. Ranks that hold parts which nobody else has cannot be
compared; `surefoot train --audit` finds such faults by taking steps again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import torch

from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.techniques.accumulate import local_part

SHARE = 0.003
"""Of the time of training that fingerprints may take; by it they are more or less frequent."""

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprints:
    """Asked after every step. The next one comes when `SHARE` of the steps' time has paid for the last."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.compares = step.layout.dp_replicate > 1
        self._last = step.number
        self._paid = self._cost = self._took = 0.0

    def due(self, seconds: float) -> bool:
        """Whether it is time for one, after a step that took so long on the slowest rank."""
        self._paid += SHARE * seconds
        return self.compares and self._paid >= self._cost

    def compare(self) -> Finding | None:
        """What differs between replicas, on every rank alike; None if nothing does.

        What the one before has taken is told with the sums: the slowest rank's time is its cost, on all ranks.
        """
        if not self.compares:
            return None
        began = time.perf_counter()
        names = [name for name, _ in self.step.model.named_parameters()]
        mine = [sum_of_bits(local_part(each.detach())) for each in self.step.model.parameters()]
        took, *everyone = zip(*self.step.world.gather([round(self._took * 1e9), *mine]), strict=True)
        self._paid, self._cost = 0.0, max(took) / 1e9
        found = differing(everyone, replicas(self.step.layout.dp_replicate, self.step.layout.ranks))
        before, self._last = self._last, self.step.number
        self._took = time.perf_counter() - began
        if found is None:
            return None
        rank, place = found
        return Finding(
            check="replicas-differ",
            severity="error",
            seen=f"The parameter `{names[place]}` has other bits on rank {rank} than on its replicas.",
            where=f"step {self.step.number}, rank {rank}; at step {before} they were the same",
            why="Replicas make the same update from the same gradients. One that differs has met a fault of its memory "
            "or processor, and every step since has been made with its wrong numbers.",
            remedy=f"Take the machine of rank {rank} out, and start again: the last checkpoint was compared when it "
            "was saved.",
        )


def sum_of_bits(tensor: torch.Tensor) -> int:
    """The sum of a tensor's bits, taken as whole numbers: any one bit changes it, and no order of summing does."""
    return int(tensor.contiguous().view(-1).view(_WHOLE[tensor.element_size()]).sum(dtype=torch.int64))


def replicas(dp_replicate: int, ranks: int) -> list[list[int]]:
    """The groups of ranks that hold the same."""
    apart = ranks // dp_replicate
    return [[first + apart * each for each in range(dp_replicate)] for first in range(apart)]


def differing(sums: Sequence[Sequence[int]], groups: list[list[int]]) -> tuple[int, int] | None:
    """Of sums by tensor and rank, the first rank, and the tensor, whose sum is not its group's most frequent one.

    Of two the later is named.
    """
    for group in groups:
        for place, by_rank in enumerate(sums):
            found = Counter(by_rank[rank] for rank in group)
            if len(found) > 1:
                usual = found.most_common(1)[0][0]
                return next(rank for rank in group if by_rank[rank] != usual), place
    return None
