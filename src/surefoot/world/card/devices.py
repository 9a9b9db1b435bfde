"""Devices as a script names them: where its calls move tensors, and what tensors answer when they are asked.

Methods of `torch.Tensor` are replaced, not heard by a function mode: that is off inside of other functions, in hooks
of autograd and in other threads. What makes a tensor is heard as an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from surefoot.torch_inside.card import as_kind, become, replaced
from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.torch_inside.storages import identity_of
from surefoot.trees import plain
from surefoot.world.card.typed import type_of

if TYPE_CHECKING:
    from surefoot.world.card.placement import Placement

T = torch.Tensor
HOST = torch.device("cpu")
_KINDS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


@contextmanager
def devices(card: Placement) -> Iterator[None]:
    """A context in which tensors move to the card and say that they are there."""
    methods = {name: _unless_running(card, getattr(T, name), make) for name, make in _METHODS.items()}
    asked = {name: _property(card, vars(torch.Tensor.__base__)[name], answer) for name, answer in _ASKED.items()}
    asked["data"] = _data(card)
    made = {name: _given(card, getattr(torch, name)) for name in ("tensor", "as_tensor", "asarray")}
    made["get_device"] = _unless_running(card, torch.get_device, _number)
    with (
        replaced(torch.nn.Module, {"to": _module_to}),
        replaced(T, {**methods, **asked, "new_tensor": _given(card, T.new_tensor)}),
        replaced(torch.UntypedStorage, {"data_ptr": _address(torch.UntypedStorage.data_ptr)}),
        replaced(torch, made),
    ):
        yield


_MODULE_TO = torch.nn.Module.to


def _module_to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """`Module.to` with the number of a device, for which torch asks for the accelerator of the machine."""
    if args and type(args[0]) is int:
        args = torch.device("cuda", args[0]), *args[1:]
    if type(kwargs.get("device")) is int:
        kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
    return _MODULE_TO(module, *args, **kwargs)


def _unless_running(card: Placement, plain: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
    """A method of ours for a script, and torch's own inside of an operator."""

    def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if card.is_running:
            return plain(tensor, *args, **kwargs)
        return make(card, plain, tensor, *args, **kwargs)

    return method


def _property(card: Placement, own: Any, answer: Callable[[Placement, bool, Any], Any]) -> property:
    def asked(tensor: torch.Tensor) -> Any:
        return own.__get__(tensor) if card.is_running else answer(card, _is_on(card, tensor), own.__get__(tensor))

    return property(asked)


def _is_on(card: Placement, tensor: torch.Tensor) -> bool:
    return any(map(card.holds, plain(tensor)))


_ASKED: dict[str, Callable[[Placement, bool, Any], Any]] = {
    "device": lambda card, on, seen: card.device if on else seen,
    "is_cuda": lambda card, on, seen: on,
    "is_cpu": lambda card, on, seen: seen and not on,
}


def _to(card: Placement, plain: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    device, dtype, rest = _asked(card, args, dict(kwargs))
    if device is None or device.type not in ("cuda", "cpu"):
        return plain(tensor, *args, **kwargs)
    if _is_on(card, tensor) == (device.type == "cuda"):
        same = {**rest, **({} if dtype is None else {"dtype": dtype})}
        return plain(tensor, **same) if same else tensor
    if type(tensor) not in _KINDS:
        return plain(tensor, *args, **kwargs)
    moved = card.onto(tensor, dtype) if device.type == "cuda" else card.off(tensor, dtype)
    return plain(moved, memory_format=rest["memory_format"]) if "memory_format" in rest else moved


def _cuda(card: Placement, plain: Any, tensor: torch.Tensor, *_: Any, **__: Any) -> Any:
    return card.onto(tensor)


def _cpu(card: Placement, plain: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return card.off(tensor) if card.holds(tensor) else plain(tensor, *args, **kwargs)


def _values(card: Placement, plain: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return plain(card.off(tensor.detach()) if isinstance(tensor, FakeTensor) else tensor, *args, **kwargs)


def _text(card: Placement, plain: Any, tensor: torch.Tensor, how: str = "") -> Any:
    return format(tensor.item(), how) if isinstance(tensor, FakeTensor) and not tensor.dim() else plain(tensor, how)


def _number(card: Placement, plain: Any, tensor: torch.Tensor) -> Any:
    return card.device.index if _is_on(card, tensor) else plain(tensor)


_METHODS: dict[str, Callable[..., Any]] = {
    "to": _to,
    "cuda": _cuda,
    "cpu": _cpu,
    "tolist": _values,
    "__format__": _text,
    "get_device": _number,
    "type": type_of,
    "is_pinned": lambda card, plain, tensor, *_, **__: False,
}


def _address(plain: Callable[[torch.UntypedStorage], int]) -> Callable[[torch.UntypedStorage], int]:
    """An address by which code tells whether tensors share their memory. A fake storage has none."""

    def address(storage: torch.UntypedStorage) -> int:
        return identity_of(storage) if storage.device.type == "meta" else plain(storage)

    return address


def _data(card: Placement) -> property:
    """`p.data = q` with one of them on the card: the parameter becomes the other, whoever holds it."""
    own = vars(torch.Tensor.__base__)["data"]

    def write(tensor: torch.Tensor, new: torch.Tensor) -> None:
        if card.is_running or card.holds(tensor) == card.holds(new):
            own.__set__(tensor, new)
            return
        become(tensor, _like(tensor, new.detach()))

    return property(own.__get__, write)


def _like(tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """New data as a tensor of the kind of another: a parameter, or a library's own, with what that remembers."""
    if type(tensor) in _KINDS:
        return torch.nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else new
    made = as_kind(type(tensor), new, tensor.requires_grad)
    vars(made).update({name: value for name, value in vars(tensor).items() if name not in vars(new)})
    return made


def _given(card: Placement, plain: Any) -> Callable[..., Any]:
    """Makes a tensor of values that a script brings: on the host, because torch looks at them there, and moves it."""

    def given(*args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("device")
        if card.is_running or not card.names(named):
            return plain(*args, **kwargs)
        return card.onto(plain(*args, **{**kwargs, "device": HOST}))

    return given


def _asked(card: Placement, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The device, the dtype and the rest of what `Tensor.to` was given."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    if args and isinstance(args[0], torch.Tensor):
        device, dtype = card.device if card.holds(args[0]) else HOST, args[0].dtype
        args = args[1:]
    elif args and isinstance(args[0], torch.dtype):
        dtype, args = args[0], args[1:]
    elif args:
        device, args = args[0], args[1:]
        if args and (args[0] is None or isinstance(args[0], torch.dtype)):
            dtype, args = args[0], args[1:]
    named = dict(zip(("non_blocking", "copy"), args, strict=False))
    rest = {name: value for name, value in {**named, **kwargs}.items() if name != "non_blocking" and value}
    if device is not None:
        device = torch.device("cuda" if card.names(device) else device)
    return device, dtype, rest
