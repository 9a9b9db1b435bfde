"""Counts the minimum of bytes that operators read and write, by phase and module.

Views move nothing. An operator reads every operand once and writes every result once. Caches are ignored.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account
from surefoot.torch_inside.operators import private, schema_of
from surefoot.trees import tensors_in

aten = torch.ops.aten
_NOTHING = {
    aten.empty,
    aten.empty_like,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
    aten.lift_fresh,
    aten.detach,
    private("_unsafe_view"),
    private("_local_scalar_dense"),
}
_OVERWRITTEN = {aten.copy_, aten.zero_, aten.fill_, aten.normal_, aten.uniform_}
"""Operators that write their first operand without reading it."""
PICKS = {aten.embedding, aten.index, aten.index_select, aten.gather, aten.nll_loss_forward}
"""Operators that read as many bytes of their first operand as they write."""


class MovedMeter(Meter):
    """Books `moved/PHASE/MODULE`."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._counted: Counter[tuple[Segment, str]] = Counter()

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not moves_nothing(func):
            moved = moved_bytes(func, list(tensors_in([args, kwargs])), written_by(func, args, out))
            self._counted[self.phases.now(), self.phases.module()] += moved

    def accounts(self) -> list[Account]:
        booked = [
            Account(f"moved/{segment.name}/{module}".rstrip("/"), amount, "bytes")
            for (segment, module), amount in self._counted.items()
        ]
        self._counted.clear()
        return booked


def moves_nothing(func: Any) -> bool:
    """Whether an operator is a view, or only allocates memory."""
    return func.is_view or func.overloadpacket in _NOTHING


def written_by(func: Any, args: Any, out: Any) -> list[torch.Tensor]:
    """The tensors that a call writes. For an in-place list operator such as `_foreach_mul_`, the first operands."""
    return list(tensors_in(out if schema_of(func).returns else args[0]))


def moved_bytes(func: Any, operands: list[torch.Tensor], results: list[torch.Tensor]) -> int:
    """The minimum of bytes that one call reads and writes."""
    written = sum(map(real_bytes, results))
    return written + sum(size for _, size in read_by(func, operands, results))


def read_by(func: Any, operands: list[torch.Tensor], results: list[torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
    """The operands that one call reads, and how many bytes of each."""
    packet = func.overloadpacket
    if packet in PICKS:
        taken = [(each, sum(map(real_bytes, results))) for each in operands[:1]]
        return taken + [(each, real_bytes(each)) for each in operands[1:]]
    return [(each, real_bytes(each)) for each in operands[packet in _OVERWRITTEN :]]


def real_bytes(tensor: torch.Tensor) -> int:
    """The bytes in memory. An expanded dimension counts once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride or not size else 1
    return elements * tensor.element_size()
