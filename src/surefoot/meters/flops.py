"""FLOPs: those of matrix products, convolutions and attention, by phase and module.

A multiplication and an addition are two FLOPs. Elementwise work, norms and softmax are not counted.
Attention counts the full square; a causal mask halves nothing, since the kernels' own counts differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from surefoot.meters.meter import Meter
from surefoot.phases import Phases, Segment
from surefoot.records.tally import Account

aten = torch.ops.aten


class FlopsMeter(Meter):
    """Books `flops/PHASE/MODULE`."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._counted: dict[tuple[Segment, str], int] = defaultdict(int)

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        formula = FORMULAS.get(func.overloadpacket)
        if formula is not None:
            self._counted[self.phases.now(), self.phases.module()] += formula(*args, **kwargs, out_val=out)

    def accounts(self) -> list[Account]:
        booked = [
            Account(f"flops/{segment.name}/{module}".rstrip("/"), count, "FLOP")
            for (segment, module), count in self._counted.items()
        ]
        self._counted.clear()
        return booked


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> int:
    """Two products per head: scores (T x S x D) and their weighted values (T x S x V)."""
    *batch, queries, width = query.shape
    heads, keys = 1, key.shape[-2]
    for size in batch:
        heads *= size
    return 2 * heads * queries * keys * (width + value.shape[-1])


def _attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> int:
    """Five products: the scores again, and the gradients of values, probabilities, queries and keys."""
    *batch, queries, width = query.shape
    heads, keys = 1, key.shape[-2]
    for size in batch:
        heads *= size
    return 2 * heads * queries * keys * (3 * width + 2 * value.shape[-1])


FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
