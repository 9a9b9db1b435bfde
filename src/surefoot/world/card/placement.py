"""Placement: decides for every operator of a script whether it runs on the host, for real, or on the card, on fakes.

A tensor of the card is fake, or small and real (see `FakeOperators`) and remembered by its storage. All others are of
the host and stay what they are, except that large weights are fake there too: a model of 28 GB must not need them here.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.torch_inside.autograd import in_graph_task
from surefoot.torch_inside.card import CardMode, Depth
from surefoot.torch_inside.fake_mode import FakeMode, FakeTensor
from surefoot.torch_inside.modes import TorchDispatchMode, without_modes
from surefoot.torch_inside.operators import private
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.card.values import ScriptOperators
from surefoot.world.fake_operators import is_small
from surefoot.world.gpu.target import Gpu
from surefoot.world.gpu.workspaces import GpuKernels
from surefoot.world.kernels import AnyKernels, Kernels
from surefoot.world.user_line import where

aten = torch.ops.aten
LARGE_BYTES = 4 << 20
"""Weights of at least this size are fake on the host too."""
_ASKS_DEVICE = torch.ops.prim.device.default
_COPIES = private("_to_copy")
_PACKS = private("_pack_padded_sequence")
"""Its second result, the sizes of batches, is on the host."""
_FROM_HOST = (aten.index, aten.index_put, aten.index_put_, aten.copy_, _PACKS)
"""Operators of a card that take indices, lengths or values from the host."""


class Placement:
    """Which tensors are on the card, and where each operator runs.

    `gpu` is the card; without one, it computes as this CPU does.
    """

    def __init__(self, gpu: Gpu | None, *, index: int = 0, ranks: int = 1) -> None:
        self.gpu, self.ranks = gpu, ranks
        self.device = torch.device("cuda", index)
        self.assumptions: dict[str, int] = {}
        self.mixed: dict[str, int] = {}
        """Lines at which tensors of the host meet those of the card, which a GPU refuses; with the operator."""
        self.moved = False
        """Whether the script put nothing on a card, and its model and batches were moved there for it."""
        self.used = False
        """Whether anything was put on the card."""
        self.held_bytes: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """The bytes that the card's tensors take now, and their peak: whoever books them says so."""
        self.kernels: AnyKernels = Kernels() if gpu is None else GpuKernels(gpu, in_backward=in_graph_task)
        self.mode, self._host = CardMode(), FakeMode()
        self.operators = ScriptOperators(self.assumptions, self.kernels, None)
        self._host_operators = ScriptOperators(self.assumptions, Kernels(limit_bytes=0), None)
        self._small: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.calling = Depth()
        """Inside, tensors that are made of nothing are on the card."""
        self._making = Depth()
        """Inside, operators without tensors of the card run there too."""

    @property
    def below(self) -> tuple[AbstractContextManager[Any], ...]:
        """The modes to enter before the meters, which see what these run."""
        return self.mode, self.operators

    @property
    def above(self) -> tuple[AbstractContextManager[Any], ...]:
        """The modes to enter after the meters: they show them the operators of the card and no others."""
        return _Router(self), _Calls(self)

    # --------------------------------------------------------------------------------------- where a tensor is

    @property
    def is_running(self) -> bool:
        """Is an operator of the card running? torch's own code for it must see tensors of the host."""
        return bool(self.mode.running)

    @property
    def is_called(self) -> bool:
        """Is a function running that was called with tensors of the card?"""
        return bool(self.calling)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Is a tensor on the card?"""
        if isinstance(tensor, FakeTensor):
            return tensor.fake_mode is self.mode
        return bool(self._small) and tensor.layout is torch.strided and id(tensor.untyped_storage()) in self._small

    def names(self, device: Any) -> bool:
        """Does a device, its name or its number mean the card?"""
        if isinstance(device, torch.device):
            return device.type == "cuda"
        return device is not None and not isinstance(device, bool) and _type_of(device) == "cuda"

    def remember(self, tree: Any) -> None:
        """Remembers small real tensors as tensors of the card."""
        for tensor in tensors_in(tree):
            if isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            key = id(storage)
            if key not in self._small:
                self._small[key] = weakref.ref(storage, functools.partial(self._gone, key))

    def _gone(self, key: int, _: Any) -> None:
        self._small.pop(key, None)

    def assume(self, what: str) -> None:
        """Counts something that the plan takes for given."""
        self.assumptions[what] = self.assumptions.get(what, 0) + 1

    def large(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """A fake tensor of the host; None if it is so small that it can be real."""
        if math.prod(shape) * dtype.itemsize < LARGE_BYTES:
            return None
        with without_modes(), self._host:
            return torch.empty(tuple(shape), dtype=dtype)

    # --------------------------------------------------------------------------------------- moving

    def onto(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A copy of a host's tensor on the card. Gradients flow back."""
        if self.holds(tensor):
            return tensor if dtype is None else tensor.to(dtype)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter, FakeTensor):
            return tensor  # a wrapper such as DTensor: its parts are moved
        if tensor.requires_grad and torch.is_grad_enabled() and tensor.grad_fn is not None:
            return _Onto.apply(tensor, self, dtype)  # type: ignore[no-untyped-call]
        with without_modes():  # while an operator of the card runs, its modes would take this for one of theirs
            detached = tensor.detach()
        return self._copied(detached, dtype).requires_grad_(tensor.requires_grad)

    def _copied(self, tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        self.used = True
        if is_small(tensor) and (dtype is None or not dtype.is_floating_point or tensor.dim() == 0):
            with without_modes():
                cast = tensor if dtype is None else tensor.to(dtype)
            with self._making, self.mode.running:  # an operator, so that the meters see it arrive
                made = cast.clone()
            self.remember(made)
            return made
        with self._making, self.mode.running, torch.no_grad():
            made = torch.empty_like(tensor, dtype=dtype)
        self.operators.values.carry(tensor, made)
        return made

    def off(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A copy of a card's tensor on the host: its values if they are known, else made up."""
        if not self.holds(tensor):
            return tensor if dtype is None else tensor.to(dtype)
        if tensor.requires_grad and torch.is_grad_enabled():
            return _Off.apply(tensor, self, dtype)  # type: ignore[no-untyped-call]
        return self._read(tensor.detach(), dtype)

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in a file, which nobody has read yet."""
        return self._read(tensor.detach(), None, noted=False) if self.holds(tensor) else tensor.detach()

    def _read(self, tensor: torch.Tensor, dtype: torch.dtype | None, *, noted: bool = True) -> torch.Tensor:
        dtype = dtype or tensor.dtype
        if not isinstance(tensor, FakeTensor):
            with without_modes():
                return tensor.to(dtype, copy=True)
        if not noted:
            with without_modes(), self._host:
                return torch.empty(tensor.shape, dtype=dtype)
        known = self.operators.values.of(tensor)
        if known is not None:
            with without_modes():
                return known.to(dtype, copy=True)
        large = self.large(tensor.shape, dtype)
        return self.operators.made_up(tensor, dtype) if large is None else large

    # --------------------------------------------------------------------------------------- running

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator where it belongs."""
        tensors = list(tensors_in([args, kwargs]))
        named = self.names(kwargs.get("device"))
        if named:
            kwargs = {**kwargs, "device": torch.device("cpu")}
            self.used = True
        here = [each for each in tensors if self.holds(each)]
        within = not tensors and (self.calling or in_graph_task())
        if not (here or named or within or self._making):
            return self._on_host(func, args, kwargs, tensors)
        if named and tensors and not here and func.overloadpacket is _COPIES:
            return self._copied(args[0], kwargs.get("dtype"))
        if func.overloadpacket is aten.copy_ and not self.holds(args[0]):
            return self._copy_off(*args[:2])
        if here and len(here) < len(tensors) and not self._making:
            args, kwargs = self._met(func, args, kwargs, tensors)
        with self.mode.running:
            out = func(*args, **kwargs)
        self.remember(out[:1] if func.overloadpacket is _PACKS else out)
        return out

    def _copy_off(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        with without_modes():
            if not isinstance(target, FakeTensor):
                target.copy_(self._read(source.detach(), target.dtype))
        return target

    def _on_host(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        if any(isinstance(each, FakeTensor) for each in tensors) or _makes_weights(func, args, kwargs, tensors):
            with without_modes(), self._host, self._host_operators:
                return func(*args, **kwargs)
        with without_modes():
            return func(*args, **kwargs)

    def _met(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> tuple[Any, Any]:
        """The operands of an operator, with those of the host moved if the script names no device."""
        strangers = [each for each in tensors if each.dim() and not self.holds(each)]
        if not strangers or func.overloadpacket in _FROM_HOST:
            return args, kwargs
        if not self.moved:
            line = f"{func.overloadpacket.__name__}{where()}"
            self.mixed[line] = self.mixed.get(line, 0) + 1
        return map_tensors(self.once, args), map_tensors(self.once, kwargs)

    def once(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the host as it is on the card. The same one each time, while it lives."""
        if self.holds(tensor) or not tensor.dim():
            return tensor
        made = vars(tensor).get("_surefoot_on_card")
        if made is None:
            with without_modes():
                detached = tensor.detach()
            made = vars(tensor)["_surefoot_on_card"] = self.onto(detached)
        return made


class _Router(TorchDispatchMode):
    """Shows every operator to the card first."""

    def __init__(self, card: Placement) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._card = card

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _ASKS_DEVICE:
            return args[0].fake_device if isinstance(args[0], FakeTensor) else args[0].device  # what torch itself sees
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # DTensor and other wrappers: their inner operators come later
        return self._card.run(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    """Hears calls of functions with tensors of the card. Results that torch's C++ makes "as the operand is" are there.

    Such a factory looks like one of the host, because torch itself sees operands on the CPU. In a backward no call is
    heard, and all factories are taken for the card's.
    """

    def __init__(self, card: Placement) -> None:
        super().__init__()
        self._card = card

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        card = self._card
        if kwargs and type(kwargs.get("device")) is int:  # torch asks for the accelerator of the machine
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        if func is torch.device and args and type(args[0]) is int:
            args = "cuda", args[0]
        if card.is_called or not any(card.holds(each) for each in args if isinstance(each, torch.Tensor)):
            return func(*args, **(kwargs or {}))
        with card.calling:
            return func(*args, **(kwargs or {}))


class _Onto(torch.autograd.Function):
    """A move to the card inside of a graph."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, card: Placement, dtype: torch.dtype | None) -> torch.Tensor:
        ctx.card, ctx.dtype = card, tensor.dtype
        return card.onto(tensor.detach(), dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.card.off(grads[0], ctx.dtype), None, None


class _Off(torch.autograd.Function):
    """A move to the host inside of a graph."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, card: Placement, dtype: torch.dtype | None) -> torch.Tensor:
        ctx.card, ctx.dtype = card, tensor.dtype
        return card.off(tensor.detach(), dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.card.onto(grads[0], ctx.dtype), None, None


def _type_of(device: Any) -> str:
    if isinstance(device, int):
        return "cuda"
    if isinstance(device, str):
        return device.partition(":")[0]
    return ""


def _makes_weights(func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> bool:
    """Does a factory make large floats while a module is built?"""
    if tensors or not args or not isinstance(args[0], list | tuple):
        return False
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if not dtype.is_floating_point or not all(isinstance(size, int) for size in args[0]):
        return False
    size = dtype.itemsize
    for length in args[0]:
        size *= length
    if size < LARGE_BYTES or torch.device(kwargs.get("device") or "cpu").type != "cpu":
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
