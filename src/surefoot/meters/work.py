"""Work: every operator that is executed, with its FLOPs and the bytes it moves, by phase and module.

Views do nothing and are skipped. `bytes_moved.py` counts what the others read and write; `fused.py` decides which of
them a compiled step joins.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

import torch

from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.bytes_moved import moved_bytes, moves_nothing, written_by
from surefoot.meters.flops import flops_of
from surefoot.meters.fused import Place, Regions
from surefoot.meters.journal import Journal
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account
from surefoot.records.usage import TRANSFERS, Work
from surefoot.torch_inside.operators import private, schema_of
from surefoot.trees import tensors_in
from surefoot.world.host_memory import transfer

aten = torch.ops.aten
FORMATS = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}

BY_CUDNN = {aten.convolution, aten.convolution_backward, private("_cudnn_rnn")}


class WorkMeter(Meter):
    """Keeps a `Work` for each kind of call."""

    def __init__(self, phases: Phases, journal: Journal | None = None) -> None:
        self.phases, self.book = phases, self if journal is None else journal
        self.regions: Regions | None = None
        """Where the step will be compiled, what becomes one kernel."""
        self.over_bus = False
        """Whether host memory is apart from the device's, so that transfers go over the bus between them."""
        self._counted: Counter[tuple[Any, ...]] = Counter()

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if does_nothing(func):
            return
        if (way := transfer()) is not None and self.over_bus:
            size = args[0].numel() * args[0].element_size()
            self._book((self.phases.now(), False, self.phases.module()), Work("", "", way, "bytes", 0, size, ()))
            return
        work = work_of(func, args, kwargs, out)
        place = self.phases.now(), self.phases.recomputing(), self.phases.module()
        if self.regions is None or not self.regions.take(func, args, kwargs, out, place, work):
            self._book(place, work)

    def entered(self, segment: Segment) -> None:
        self.finish()

    def finish(self) -> None:
        """Books the kernels of a phase that has ended."""
        for place, work in self.regions.finish() if self.regions is not None else ():
            self._book(place, work)

    def _book(self, place: Place, work: Work) -> None:
        self.book.count_work(*place, work.operator, work.format, work.flops, work.bytes_moved, work.shape)

    def count_work(
        self,
        segment: Segment,
        again: bool,
        module: str,
        operator: str,
        number_format: str,
        flops: int,
        moved: int,
        shape: tuple[int, ...],
    ) -> None:
        """Adds one executed operator."""
        self._counted[segment, again, starred(module), operator, number_format, flops, moved, shape] += 1

    def accounts(self) -> list[Account]:
        """The bytes that operators move, by phase. Resets the counts, so call `works()` first."""
        moved: Counter[str] = Counter()
        for (segment, again, _, operator, _, _, size, _), calls in self._counted.items():
            kind = f"transfers/{operator}" if operator in TRANSFERS else "moved"
            moved[f"{kind}/{'recompute' if again else segment.name}"] += calls * size
        self._counted.clear()
        return [Account(name, amount, "bytes") for name, amount in moved.items()]

    def works(self) -> tuple[Work, ...]:
        """The work executed since the last call of `accounts`."""
        found: Counter[tuple[Any, ...]] = Counter()
        for (segment, again, *kind), calls in self._counted.items():
            found[("recompute" if again else segment.name, *kind)] += calls
        return tuple(Work(*kind, calls=calls) for kind, calls in found.items())  # type: ignore[misc]


def work_of(func: Any, args: Any, kwargs: Any, out: Any) -> Work:
    """The work of one call, without its phase and module."""
    packet, flops = func.overloadpacket, flops_of(func, args, kwargs, out)
    operands = list(tensors_in([args, kwargs]))
    if flops and _is_causal(func, args, kwargs):
        flops //= 2  # fused attention skips what its mask hides
    return Work(
        phase="",
        module="",
        operator=packet.__name__,
        format=_format(func, operands, flops),
        flops=flops,
        bytes_moved=moved_bytes(func, operands, written_by(func, args, out)),
        shape=_product_shape(packet, args),
    )


def _format(func: Any, operands: list[torch.Tensor], flops: int) -> str:
    """The number format of a call. GPUs may compute float32 products in TF32, and those of cuDNN do by default."""
    found = next((FORMATS[each.dtype] for each in operands if each.dtype in FORMATS), "int")
    if found != "fp32" or not flops:
        return found
    if func.overloadpacket in BY_CUDNN:
        return "tf32" if torch.backends.cudnn.allow_tf32 else found
    return "tf32" if torch.get_float32_matmul_precision() != "highest" else found


def starred(module: str) -> str:
    """`layers.3.mlp` as `layers.*.mlp`."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


@functools.cache
def does_nothing(func: Any) -> bool:
    """Whether an operator is a view, only allocates, or is not torch's own."""
    return moves_nothing(func) or func.namespace not in ("aten", "mkldnn", "mkldnn_prepacked")


def _is_causal(func: Any, args: Any, kwargs: Any) -> bool:
    place = _causal_place(func)
    return place is not None and bool(args[place] if place < len(args) else kwargs.get("is_causal", False))


@functools.cache
def _causal_place(func: Any) -> int | None:
    names = [argument.name for argument in schema_of(func).arguments]
    return names.index("is_causal") if "is_causal" in names else None


def _product_shape(packet: Any, args: Any) -> tuple[int, ...]:
    if packet in (aten.mm, aten.bmm, private("_scaled_mm")):
        left, right = args[:2]
    elif packet in (aten.addmm, aten.baddbmm):
        left, right = args[1:3]
    else:
        return ()
    many = left.shape[0] if left.dim() == 3 else 1
    return many, left.shape[-2], right.shape[-1], left.shape[-1]
