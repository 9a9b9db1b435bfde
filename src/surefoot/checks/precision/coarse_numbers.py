"""Finds numbers that half precision cannot hold: positions, running sums, mask values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.precision import Coarse, PrecisionFacts
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_SUMS = {"add", "__add__", "__iadd__", "add_", "__radd__", "lerp", "lerp_"}
_SHRINKS = {"mul", "__mul__", "__rmul__", "mul_", "__imul__"}
_FILLING = {"mul", "__mul__", "__rmul__", "where", "full", "full_like", "tensor", "add", "__add__", "__radd__"}
_COUNTING = {"arange", "range", "linspace", "cumsum"}
_CASTS = {"to", "type", "type_as", "half", "bfloat16", "float"}
_PRODUCTS = {
    "mul", "__mul__", "__rmul__", "div", "__truediv__", "outer", "ger", "einsum", "matmul", "__matmul__", "mm", "bmm",
}  # fmt: skip
_WAVES = {"sin", "cos"}
_HALVES = (torch.float16, torch.bfloat16)
_LARGEST = 1 << 20
_MOST = 16
_BLURRED = 0.1
"""Angles that are rounded by more than this, in radians, can no longer be told apart."""


class CoarseNumbers(Observer):
    """Watches functions that return half precision."""

    functions = _SUMS | _SHRINKS | _FILLING | _COUNTING | _CASTS | _PRODUCTS | _WAVES

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.coarse: dict[tuple[str, str], Coarse] = {}
        self._blurred: dict[int, torch.Tensor] = {}
        """Whole numbers that half precision rounded, and their products, by storage."""
        self._sums: WeakNotes[tuple[int, int]] = WeakNotes()
        """Running sums, with the number of forwards and updates at their start."""
        self._forwards = 0

    def model_called(self, model: torch.nn.Module, args: Args) -> None:
        self._forwards += 1

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Checks a result in half precision."""
        name = getattr(function, "__name__", "")
        if self._blurred and (name in _PRODUCTS or name in _WAVES or name in _CASTS):
            self._blur(name, args, out)
        if not isinstance(out, torch.Tensor) or out.dtype not in _HALVES:
            return
        if name in _SUMS or (name in _SHRINKS and self._sums):
            self._sum(args, out, grows=name in _SUMS)
        if not self.scene.close or not readable(out):
            return
        if name in _FILLING:
            self._filled(args, out)
        if name in _CASTS:
            self._cast(args[0], out)
        elif name in _COUNTING:
            self._counted(name, args, kwargs, out)
        elif name in _PRODUCTS and not out.requires_grad:
            self._multiplied(args, out)
        elif name in _WAVES and not out.requires_grad and readable(args[0]):
            self._wave(args[0])

    def overflowed(self, dtype: torch.dtype, value: float) -> None:
        """A mask was filled with a value that its dtype cannot hold."""
        self._note("mask", dtype, value)

    def _filled(self, args: Args, out: torch.Tensor) -> None:
        most = torch.finfo(out.dtype).max
        for value in args:
            if isinstance(value, int | float) and most < abs(value) < math.inf:
                with aside():
                    overflows = not out.requires_grad or bool(out.isinf().any())  # else it scales a loss
                if overflows:
                    self._note("mask", out.dtype, value)

    def _cast(self, given: Any, out: torch.Tensor) -> None:
        if not readable(given) or given.numel() > _LARGEST or given.dtype == torch.bool or given.numel() < 2:
            return
        with aside():
            overflows = out.isinf()
            if bool(overflows.any()):
                filled = given[overflows]
                if filled.unique().numel() == 1 and not bool(filled.isinf().any()):
                    self._note("mask", out.dtype, float(filled[0]))
            elif not given.requires_grad:
                self._round(given, out)

    def _round(self, given: torch.Tensor, out: torch.Tensor) -> None:
        """Checks whole numbers that half precision rounds: positions if they count up, otherwise possible angles."""
        rounded = bool((given != wide(out)).any())
        if rounded and _counts(given):
            self._note("positions", out.dtype, float(given.max()))
        elif rounded and len(self._blurred) < _MOST and bool((given == given.round()).all()):
            self._blurred[out.untyped_storage().data_ptr()] = out

    def _blur(self, name: str, args: Args, out: Any) -> None:
        """Follows rounded whole numbers until they become angles."""
        entered = (self._blurred.get(each.untyped_storage().data_ptr()) for each in tensors(args) if readable(each))
        rounded = next((each for each in entered if each is not None), None)
        if rounded is not None and name in _WAVES:
            with aside():
                self._note("positions", rounded.dtype, float(rounded.max()))
        elif rounded is not None and readable(out) and not out.requires_grad and len(self._blurred) < _MOST:
            self._blurred[out.untyped_storage().data_ptr()] = out

    def _counted(self, name: str, args: Args, kwargs: Kwargs, out: torch.Tensor) -> None:
        """Checks for consecutive whole numbers that half precision cannot tell apart."""
        with aside():
            if name != "cumsum":
                wrong = out.unique().numel() < out.numel()
            else:
                dim: Any = kwargs.get("dim", args[1] if len(args) > 1 else 0)
                given = wide(args[0])
                wrong = bool((given == given.round()).all()) and not given.cumsum(dim).equal(wide(out))
            if wrong:
                self._note("positions", out.dtype, float(out.max()))

    def _multiplied(self, args: Args, out: torch.Tensor) -> None:
        """Checks for positions that a product, or autocast, converts to half precision."""
        for each in tensors(args):
            if each.dtype not in _HALVES and readable(each) and each.numel() <= _LARGEST:
                with aside():
                    if _counts(each) and not bool((each == wide(each.to(out.dtype))).all()):
                        self._note("positions", out.dtype, float(each.max()))

    def _wave(self, angles: torch.Tensor) -> None:
        with aside():
            largest = float(angles.abs().max()) if angles.numel() else 0.0
            if largest < math.inf and largest * torch.finfo(angles.dtype).eps / 2 > _BLURRED:
                self._note("positions", angles.dtype, largest)

    def _sum(self, args: Args, out: torch.Tensor, *, grows: bool) -> None:
        """A running sum in half precision outside the model: a single number over batches, or many over updates."""
        if out.grad_fn is not None or self.scene.phases.in_model() or self.scene.updating is not None:
            return
        begun = min((known for each in args if (known := self._sums.get(each)) is not None), default=None)
        if begun is None and not grows:
            return
        forwards, updates = begun or (self._forwards, self.scene.updates)
        self._sums[out] = forwards, updates
        lasts = self.scene.updates - updates >= 2 if out.dim() else self._forwards - forwards >= 2
        if grows and lasts and readable(out) and not self._is_trained(out):
            with aside():
                self._note("sum", out.dtype, float(out.abs().max()) if out.numel() else 0.0)

    def _is_trained(self, tensor: torch.Tensor) -> bool:
        """Is it a gradient, or a parameter that the loop updates itself?"""
        return any(tensor is p or tensor is p.grad for p in self.scene.reached)

    def _note(self, kind: str, dtype: torch.dtype, value: float) -> None:
        where = caller() or self.scene.phases.module() or "the model"
        self.coarse.setdefault((kind, where), Coarse(kind, where, str(dtype).removeprefix("torch."), value))

    def facts(self) -> Iterator[PrecisionFacts]:
        yield PrecisionFacts(coarse=tuple(self.coarse.values()))


def _counts(numbers: torch.Tensor) -> bool:
    """Do numbers rise by one along their first or last dimension?"""
    numbers = numbers.squeeze()
    if numbers.dim() == 0 or numbers.is_complex():
        return False
    return any(numbers.shape[dim] >= 4 and bool((numbers.diff(dim=dim) == 1).all()) for dim in {0, numbers.dim() - 1})
