"""Fused: joins the operators of compiled code into regions, one kernel each: a simple model of inductor.

| operators                                             | become                                                      |
|-------------------------------------------------------|-------------------------------------------------------------|
| products, convolutions, attention, pools, sorts,      | a kernel each; a linear layer's bias belongs to its product |
| scatters                                              |                                                             |
| elementwise ones over the same number of elements     | one kernel, if one feeds another or both read the same      |
| reductions of rows (norms, softmax, sums over the     | one kernel with what makes the rows, what is made of them,  |
| last dimensions)                                      | and elementwise ones over as many elements                  |
| reductions of columns (batch statistics, gradients of | kernels of their own, one for all that read the same        |
| biases and of norms' weights)                         |                                                             |

A region reads results of other regions. It writes results that others read or that outlive the phase. Two operators are
not joined if another must run between them: an operator that cannot be joined to one it reads from is one level above
it, and a region has one level. Forward, backward and recomputation are compiled separately; so is each block with
`compile=blocks`. What a region of forward makes for backward alone is not written: backward makes it again from what
the region read, unless it is small beside that. A cross-entropy picks from its softmax without writing it. The model
ignores tiling.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from surefoot.events.listener import Segment
from surefoot.meters.bytes_moved import PICKS, read_by, real_bytes, written_by
from surefoot.meters.flops import FORMULAS
from surefoot.records.usage import Work
from surefoot.torch_inside.operators import private
from surefoot.trees import tensors_in

aten = torch.ops.aten
Place = tuple[Segment, bool, str]
IF_LOSS_INSIDE = " if the loss is inside"
"""Ends the name of a unit that an operator belongs to only if the model computes its own loss."""

ALONE = {
    aten.embedding_dense_backward, aten.index_put, aten.index_put_, aten.scatter, aten.scatter_add, aten.scatter_,
    aten.scatter_add_, aten.sort, aten.topk, aten.nonzero, aten.cumsum, aten.max_pool2d_with_indices,
    aten.max_pool2d_with_indices_backward, aten.avg_pool2d, aten.avg_pool2d_backward, aten.upsample_nearest2d,
    aten.upsample_bilinear2d, private("_ctc_loss"),
}  # fmt: skip
"""Operators that become separate kernels, besides those that have FLOPs."""

SMALL = 0.25
"""A result smaller than this share of what its region reads is kept for backward, not made again."""

_LAST = {
    private("_softmax"): 1,
    private("_log_softmax"): 1,
    private("_softmax_backward_data"): 2,
    private("_log_softmax_backward_data"): 2,
}
"""Reductions along a dimension: the position of the argument that names it."""
_SHAPED = {aten.native_layer_norm: 1, private("_fused_rms_norm"): 1}
_SHAPED_BACKWARD = {aten.native_layer_norm_backward: 2, private("_fused_rms_norm_backward"): 2}
"""Norms over the last dimensions: the position of the argument with their sizes."""
_OF_CHANNELS = {
    aten.native_batch_norm, aten.cudnn_batch_norm, private("_native_batch_norm_legit"), aten.native_group_norm,
    aten.native_batch_norm_backward, aten.cudnn_batch_norm_backward, aten.native_group_norm_backward,
}  # fmt: skip


class Loop(NamedTuple):
    """The loop of a kernel: its elements, and for a reduction its results, along rows or columns."""

    elements: int
    reduced: int = 0
    columns: bool = False

    def joined(self, other: Loop) -> Loop | None:
        """One loop for both. None if they cannot be joined."""
        if self.columns or other.columns:
            return self if self == other else None
        if self.elements == other.elements:
            same = self.reduced == other.reduced or not (self.reduced and other.reduced)
            return max(self, other) if same else None
        for outer, inner in ((self, other), (other, self)):
            if outer.reduced == inner.elements and not inner.reduced:
                return outer
        return None


@dataclass(eq=False)
class Region:
    """Operators that become one kernel. Storages are numbers, with the bytes read or written of each."""

    place: Place
    unit: str
    level: int
    loop: Loop
    format: str
    reads: dict[int, int] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    """Storages that this region makes and others read."""

    def take_in(self, earlier: Region, loop: Loop) -> None:
        """Merges an earlier region: its results are no longer read from memory."""
        self.reads = {**earlier.reads, **{each: size for each, size in self.reads.items() if each not in earlier.made}}
        self.made = {**earlier.made, **self.made}
        self.used |= earlier.used
        self.place, self.loop = earlier.place, loop


class Regions:
    """The regions of the current phase. `unit_of` names the unit that a phase and module are compiled in."""

    def __init__(self, unit_of: Callable[[str, str], str]) -> None:
        self.unit_of = unit_of
        self._open: dict[Region, None] = {}
        self._makers: dict[int, tuple[Region | None, int, str]] = {}
        """Of each storage made in this phase: the region, or none for a kernel alone; its level and unit."""
        self._readers: dict[int, list[Region]] = {}
        self._numbers: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._numbered = 0
        self._again: dict[int, dict[int, int]] = {}
        """Of storages that forward did not write: what backward reads to make them again."""
        self._loss_outside = False

    def take(self, func: Any, args: Any, kwargs: Any, out: Any, place: Place, work: Work) -> bool:
        """Puts an operator into a region. False if it is a separate kernel or not compiled."""
        segment, again, module = place
        unit = self._unit(segment.name, module, func)
        unit += " again" if unit and again else ""
        results = written_by(func, args, out)
        reads = {self._number(each): size for each, size in read_by(func, list(tensors_in([args, kwargs])), results)}
        if unit and func.overloadpacket is aten.nll_loss_forward:
            return True
        reads = self._to_make(reads) if unit else reads
        if unit and self._is_bias(func, args, unit):
            return True
        if not unit or func.overloadpacket in FORMULAS or func.overloadpacket in ALONE:
            self._alone(reads, results, unit)
            return False
        for loop, parts in _loops(func.overloadpacket, args, results):
            made = {self._number(each): real_bytes(each) for each in parts}
            self._join(Region(place, unit, 0, loop, work.format, dict(reads), made))
            reads = {**reads, **({} if not loop.columns else made)}
        return True

    def finish(self) -> Iterator[tuple[Place, Work]]:
        """The kernels of a phase that has ended. Results that are used or still live count as written."""
        alive = {number for number, storage in self._numbers.values() if storage() is not None}
        for region in self._open:
            self._leave_to_backward(region)
            written = sum(
                size
                for number, size in region.made.items()
                if number in region.used or (number in alive and number not in self._again)
            )
            yield region.place, Work("", "", "fused", region.format, 0, written + sum(region.reads.values()))
        if any(region.place[0].name == "backward" for region in self._open):
            self._again.clear()
        self._open.clear()
        self._makers.clear()
        self._readers.clear()

    def _unit(self, phase: str, module: str, func: Any) -> str:
        """The unit of an operator. One of backward outside all modules is of the model if its loss is."""
        unit = self.unit_of(phase, module)
        if phase == "loss" and not unit:
            self._loss_outside |= func.overloadpacket in _LAST or func.overloadpacket in FORMULAS
        if unit.endswith(IF_LOSS_INSIDE):
            unit = "" if self._loss_outside else unit.removesuffix(IF_LOSS_INSIDE)
        return unit

    def _leave_to_backward(self, region: Region) -> None:
        """Notes the results of a region of forward that only backward reads."""
        segment, again, _ = region.place
        if segment.name != "forward" or again or not region.reads:
            return
        for number, size in region.made.items():
            if number not in region.used and size >= SMALL * sum(region.reads.values()):
                self._again[number] = region.reads

    def _to_make(self, reads: dict[int, int]) -> dict[int, int]:
        """What is really read for these storages: in place of those not written, what they are made from."""
        made: dict[int, int] = {}
        for number, size in reads.items():
            made |= self._to_make(self._again[number]) if number in self._again else {number: size}
        return made

    def _is_bias(self, func: Any, args: Any, unit: str) -> bool:
        """Whether an operator adds a bias in place to the result of a product."""
        if func is not aten.add_.Tensor or not isinstance(args[1], torch.Tensor) or args[1].dim() != 1:
            return False
        return self._makers.get(self._number(args[0]), (0, 0, ""))[::2] == (None, unit)

    def _alone(self, reads: dict[int, int], results: list[torch.Tensor], unit: str) -> None:
        levels = [1 + self._makers[each][1] for each in reads if each in self._makers and self._makers[each][2] == unit]
        self._use(reads)
        for each in results:
            self._makers[self._number(each)] = None, max(levels, default=0), unit

    def _use(self, reads: dict[int, int]) -> None:
        """Marks storages as read by other regions."""
        for number in reads:
            region, _, _ = self._makers.get(number, (None, 0, ""))
            if region is not None:
                region.used.add(number)

    def _join(self, new: Region) -> None:
        """Joins a region of one operator to regions at its level that feed it, or that read the same storages."""
        makers = [self._makers[number] for number in new.reads if number in self._makers]
        for maker, level, unit in makers:
            if unit == new.unit:
                apart = maker is not None and maker.loop.joined(new.loop) is None
                new.level = max(new.level, level + apart)
        beside = [region for number in new.reads for region in self._readers.get(number, ())]
        for region in dict.fromkeys([maker for maker, _, _ in makers if maker is not None] + beside):
            loop = region.loop.joined(new.loop)
            if region in self._open and (region.unit, region.level) == (new.unit, new.level) and loop is not None:
                new.take_in(region, loop)
                del self._open[region]
        self._open[new] = None
        self._use(new.reads)
        for number in new.made:
            self._makers[number] = new, new.level, new.unit
        for number in new.reads:
            self._readers[number] = [each for each in self._readers.get(number, ()) if each in self._open] + [new]

    def _number(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        known = self._numbers.get(id(storage))
        if known is None or known[1]() is not storage:
            self._numbered += 1
            known = self._numbers[id(storage)] = self._numbered, weakref.ref(storage)
        return known[0]


def _loops(packet: Any, args: Any, results: list[torch.Tensor]) -> list[tuple[Loop, list[torch.Tensor]]]:
    """The loops of an operator, with the results of each. Some norms have two loops."""
    operands = list(tensors_in(args))
    elements = max((each.numel() for each in (*operands, *results)), default=0)
    whole, parts = ([each for each in results if (each.numel() == elements) is of] for of in (True, False))
    if packet in _LAST:
        return [(Loop(elements, elements // max(1, operands[0].shape[args[_LAST[packet]]])), results)]
    if packet in _SHAPED:
        return [(Loop(elements, elements // max(1, math.prod(args[_SHAPED[packet]]))), results)]
    if packet in _SHAPED_BACKWARD:
        inner = max(1, math.prod(args[_SHAPED_BACKWARD[packet]]))
        return [(Loop(elements, elements // inner), whole), (Loop(elements, inner, columns=True), parts)]
    if packet in _OF_CHANNELS:
        return [(Loop(elements, operands[0].shape[1], columns=True), parts), (Loop(elements), whole)]
    largest = max((each.numel() for each in results), default=0)
    if 0 < largest < elements and operands[0].numel() == elements and packet not in PICKS:
        return [(Loop(elements, largest, columns=_of_columns(args, operands[0])), results)]
    return [(Loop(largest), results)]


def _of_columns(args: Any, operand: torch.Tensor) -> bool:
    """Whether a reduction keeps the last dimension, and more than one number."""
    dims = next((each for each in args[1:] if isinstance(each, list | tuple)), None)
    return bool(dims) and operand.dim() - 1 not in [dim % operand.dim() for dim in dims or ()]
