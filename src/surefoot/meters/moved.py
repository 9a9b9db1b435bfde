"""Moved: the bytes that operators read and write at least, by phase and module: the other axis of a roofline.

Views move nothing. An operator reads every operand once and writes every result once; caches are not known.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from surefoot.meters.meter import Meter
from surefoot.phases import Phases, Segment
from surefoot.records.tally import Account
from surefoot.trees import tensors_in

aten = torch.ops.aten
_PICKS = {aten.embedding, aten.index, aten.index_select, aten.gather}
"""They read as much of their first operand as they write."""
_NOTHING = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten._unsafe_view, aten.detach}


class MovedMeter(Meter):
    """Books `moved/PHASE/MODULE`."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._counted: Counter[tuple[Segment, str]] = Counter()

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if func.is_view or func.overloadpacket in _NOTHING:
            return
        written = sum(map(_bytes, tensors_in(out)))
        operands = list(tensors_in([args, kwargs]))
        picks = func.overloadpacket in _PICKS
        read = sum(map(_bytes, operands[picks:])) + (written if picks else 0)
        self._counted[self.phases.now(), self.phases.module()] += read + written

    def accounts(self) -> list[Account]:
        booked = [
            Account(f"moved/{segment.name}/{module}".rstrip("/"), amount, "bytes")
            for (segment, module), amount in self._counted.items()
        ]
        self._counted.clear()
        return booked


def _bytes(tensor: torch.Tensor) -> int:
    """What is really there: an expanded dimension is read from one place."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride or not size else 1
    return elements * tensor.element_size()
