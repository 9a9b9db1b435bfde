"""Fingerprint: compares the bits of model replicas, to find hardware faults that raise no error.

Every few steps, and before every save, each rank sums the bits of each of its parameters as integers. It compares the
sums with the ranks that hold the same parameters. A flipped bit changes the sum. Shards that only one rank holds
cannot be compared; `surefoot train --audit` finds such faults by repeating steps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import torch

from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.trees import local_part

SHARE = 0.003
"""The share of the training time that fingerprints may take. It determines how often they are taken."""

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprints:
    """Decides after every step. The next comparison is due when `SHARE` of the time since then covers its cost."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.compares = step.layout.dp_replicate > 1
        self._last = step.number
        self._paid = self._cost = self._took = 0.0

    def due(self, seconds: float) -> bool:
        """Whether a comparison is due. `seconds` is how long the step took on the slowest rank."""
        self._paid += SHARE * seconds
        return self.compares and self._paid >= self._cost

    def compare(self) -> Finding | None:
        """The first difference between replicas, the same on every rank. None if they are equal.

        Ranks also exchange how long the last comparison took. The slowest rank's time is its cost on all ranks.
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
            seen=f"The parameter `{names[place]}` differs on rank {rank} from its replicas.",
            where=f"step {self.step.number}, rank {rank}; at step {before} they were the same",
            why="Replicas make the same update from the same gradients. One that differs had a fault in its memory "
            "or processor, and every step since then used its wrong numbers.",
            remedy=f"Replace the machine of rank {rank} and resume: the replicas agreed when the last checkpoint "
            "was saved.",
        )


def sum_of_bits(tensor: torch.Tensor) -> int:
    """The sum of a tensor's bits, read as integers. Any flipped bit changes it; the order of summing does not."""
    return int(tensor.contiguous().view(-1).view(_WHOLE[tensor.element_size()]).sum(dtype=torch.int64))


def replicas(dp_replicate: int, ranks: int) -> list[list[int]]:
    """The groups of ranks that hold the same parameters."""
    apart = ranks // dp_replicate
    return [[first + apart * each for each in range(dp_replicate)] for first in range(apart)]


def differing(sums: Sequence[Sequence[int]], groups: list[list[int]]) -> tuple[int, int] | None:
    """The first rank and tensor whose sum differs from the most frequent one in its group.

    In a group of two, the later rank is named.
    """
    for group in groups:
        for place, by_rank in enumerate(sums):
            found = Counter(by_rank[rank] for rank in group)
            if len(found) > 1:
                usual = found.most_common(1)[0][0]
                return next(rank for rank in group if by_rank[rank] != usual), place
    return None
