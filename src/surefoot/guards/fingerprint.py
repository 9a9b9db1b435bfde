"""Fingerprint: replicas of a model must hold the same bits. One that does not has met a fault that raises nothing.

Every so many steps, and before every save, each rank sums the bits of each of its parameters as integers and compares
with the ranks that hold the same. A flipped bit changes the sum. Ranks that hold parts which nobody else has cannot be
compared; `surefoot train --audit` finds such faults by taking steps again.
"""

from __future__ import annotations

import math
import time
from collections import Counter

import torch

from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.techniques.accumulate import local_part

SHARE = 0.004
"""Of the time of training that fingerprints may take; the interval is chosen by it."""

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprints:
    """Asked after every step. The first ones tell what one costs; after that they come as often as `SHARE` allows."""

    def __init__(self, step: Step) -> None:
        self.step, self.every = step, 1
        self.compares = step.layout.dp_replicate > 1
        self._last = step.number
        self._costs: list[float] = []

    def due(self, seconds: float) -> bool:
        """Whether it is time for one, after a step that took so long on the slowest rank."""
        if not self.compares:
            return False
        if self._costs:
            cost = max(each / 1e9 for (each,) in self.step.world.gather([round(min(self._costs) * 1e9)]))
            self.every = max(1, math.ceil(cost / (SHARE * seconds)))
            self._costs.clear()
        return self.step.number - self._last >= self.every

    def compare(self) -> Finding | None:
        """What differs between replicas, on every rank alike; None if nothing does."""
        if not self.compares:
            return None
        began = time.perf_counter()
        names = [name for name, _ in self.step.model.named_parameters()]
        mine = [sum_of_bits(local_part(each.detach())) for each in self.step.model.parameters()]
        everyone = self.step.world.gather(mine)
        found = differing(everyone, replicas(self.step.layout.dp_replicate, self.step.layout.ranks))
        before, self._last = self._last, self.step.number
        if self.every == 1:
            self._costs.append(time.perf_counter() - began)
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


def differing(sums: list[list[int]], groups: list[list[int]]) -> tuple[int, int] | None:
    """The first rank, and the tensor, whose sum is not its group's most frequent one; of two, the later is named."""
    for group in groups:
        for place in range(len(sums[0])):
            found = Counter(sums[rank][place] for rank in group)
            if len(found) > 1:
                usual = found.most_common(1)[0][0]
                return next(rank for rank in group if sums[rank][place] != usual), place
    return None
