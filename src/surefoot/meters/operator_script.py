"""Records the operator calls of a step in order, with the storages that each reads, makes and frees."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.bytes_moved import moved_bytes, written_by
from surefoot.meters.flops import FORMULAS
from surefoot.meters.meter import Meter
from surefoot.meters.work import does_nothing, starred
from surefoot.records.usage import Timed
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.kernels import for_real, signature


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: its storage and its layout."""

    storage: int
    storage_bytes: int
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Call:
    """One call of an operator, and its place in the step."""

    func: Any
    args: Any
    kwargs: Any
    results: tuple[Operand, ...]
    with_gradients: bool
    is_product: bool
    segment: Segment
    again: bool
    module: str
    bytes_touched: int
    signature: Any

    @property
    def phase(self) -> str:
        return "recompute" if self.again else self.segment.name

    @property
    def place(self) -> Any:
        """A key. Calls with the same key are assumed to take equally long."""
        return self.signature, self.phase, self.module

    def timed(self, calls: int, seconds: float | None) -> Timed:
        """The timing of this call and of those in the same place."""
        name = self.func.overloadpacket.__name__
        return Timed(self.phase, self.module, name, is_product=self.is_product, calls=calls, seconds=seconds)


@dataclass(frozen=True)
class Freed:
    """A storage was freed."""

    storage: int


class Script(Meter):
    """Records the current step. `steps` holds the steps that have ended."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self.steps: list[list[Call | Freed]] = []
        self.known: dict[int, torch.UntypedStorage] = {}
        """What lies in storages that are real in a fake world: scalars, and integers such as tokens."""
        self._written: list[Call | Freed] = []
        self._storages: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._numbered = 0

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        operands, results = list(tensors_in([args, kwargs])), list(tensors_in(out))
        if does_nothing(func) or not all(tensor.layout == torch.strided for tensor in (*operands, *results)):
            return
        self._written.append(
            Call(
                func=func,
                args=map_tensors(self._operand, args),
                kwargs=map_tensors(self._operand, kwargs),
                results=tuple(map(self._operand, results)),
                with_gradients=torch.is_grad_enabled(),
                is_product=func.overloadpacket in FORMULAS,
                segment=self.phases.now(),
                again=self.phases.recomputing(),
                module=starred(self.phases.module()),
                bytes_touched=moved_bytes(func, operands, written_by(func, args, out)),
                signature=(func, signature(args), signature(kwargs)),
            )
        )

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.steps.append(self._written)
        self._written = []

    def _operand(self, tensor: torch.Tensor) -> Operand:
        storage = tensor.untyped_storage()
        key = self._number(storage)
        if key not in self.known and storage.device.type != "meta":
            with for_real():
                self.known[key] = storage.clone()
        offset = int(tensor.storage_offset())
        return Operand(key, storage.nbytes(), tensor.dtype, tensor.shape, tensor.stride(), offset)

    def _number(self, storage: torch.UntypedStorage) -> int:
        key = id(storage)
        if key not in self._storages:
            self._numbered += 1
            number = self._numbered
            self._storages[key] = number, weakref.ref(storage, lambda _: self._gone(key))
        return self._storages[key][0]

    def _gone(self, key: int) -> None:
        number, _ = self._storages.pop(key)
        self._written.append(Freed(number))
