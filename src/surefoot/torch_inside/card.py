"""A card that is not there: what torch must believe so that a script can use `cuda` on a machine without a GPU.

Tensors on the card are fake CPU tensors that say `cuda:0` to whoever asks. torch's own code for fake tensors must still
see `cpu`, so the answer changes while an operator runs.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from surefoot.torch_inside.fake_mode import FakeMode, FakeTensor
from surefoot.torch_inside.patches import patched


class Depth:
    """A context that may be entered again inside; true while it is entered."""

    def __init__(self) -> None:
        self._entered = 0

    def __enter__(self) -> None:
        self._entered += 1

    def __exit__(self, *_: object) -> None:
        self._entered -= 1

    def __bool__(self) -> bool:
        return self._entered > 0


class CardMode(FakeMode):
    """The fake mode of a card's tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.running = Depth()
        """Entered while an operator of the card runs: torch's code for it sees tensors of the host."""


@contextmanager
def fakes_answer(mode: CardMode, device: torch.device) -> Iterator[None]:
    """A context in which the fake tensors of a mode say that they are on a device, unless an operator is running."""
    plain = FakeTensor.device

    def answered(tensor: Any) -> torch.device:
        if tensor.fake_mode is mode and not mode.running and not mode.in_kernel_invocation:
            return device
        return plain.fget(tensor)  # type: ignore[attr-defined]

    FakeTensor.device = property(answered)  # type: ignore[assignment]
    try:
        yield
    finally:
        FakeTensor.device = plain  # type: ignore[method-assign]


def become(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Lets two tensors change places: whoever holds one holds the other from now on.

    `torch.utils.swap_tensors` refuses tensors with weak references, which optimizers and meters have.
    """
    kinds, fields = (tensor.__class__, other.__class__), (dict(vars(tensor)), dict(vars(other)))
    slots = _slots(tensor), _slots(other)
    tensor.__class__, other.__class__ = kinds[::-1]
    for each, new, kept in zip((tensor, other), fields[::-1], slots[::-1], strict=True):
        vars(each).clear()
        vars(each).update(new)
        for name, value in kept.items():
            setattr(each, name, value)
    torch._C._swap_tensor_impl(tensor, other)


def _slots(tensor: torch.Tensor) -> dict[str, Any]:
    """What a tensor holds in slots: a DTensor has its part there."""
    names = (name for kind in type(tensor).__mro__ for name in vars(kind).get("__slots__", ()))
    return {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}


def as_kind(kind: type[torch.Tensor], data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """A tensor of a library's own class, such as a quantised parameter. One that is fake is fake too."""
    base = kind.__bases__[0] if issubclass(kind, FakeTensor) else kind
    if not isinstance(data, FakeTensor):
        return _MAKE_SUBCLASS(base, data, requires_grad)
    made = data.detach()
    made.__class__ = _fake_kind(base)
    return made.requires_grad_(requires_grad)


_MAKE_SUBCLASS = torch.Tensor._make_subclass


@functools.cache
def _fake_kind(kind: type[torch.Tensor]) -> type[torch.Tensor]:
    return types.new_class(kind.__name__, (kind, FakeTensor), exec_body=lambda body: body.update(detach=_detached))


def _detached(tensor: Any) -> torch.Tensor:
    """Another tensor of the same kind: `Module.to` makes a parameter of it, which remembers what this one does."""
    made = as_kind(type(tensor), torch.Tensor.detach(tensor), requires_grad=False)
    vars(made).update({name: value for name, value in vars(tensor).items() if name not in vars(made)})
    return made


@contextmanager
def fakes_of_any_kind() -> Iterator[None]:
    """A context in which libraries make tensors of their own classes from fake ones. torch refuses it."""

    def make(kind: Any, data: Any, requires_grad: bool = False, **rest: Any) -> Any:
        if isinstance(data, FakeTensor) or (issubclass(kind, FakeTensor) and kind is not FakeTensor):
            return as_kind(kind, data, requires_grad)
        return _MAKE_SUBCLASS(kind, data, requires_grad, **rest)

    with replaced(torch.Tensor, {"_make_subclass": staticmethod(make)}):
        yield


@contextmanager
def modules_keep_parameters() -> Iterator[None]:
    """A context in which `Module.to` keeps the identity of parameters, whatever refers to them."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with patched(torch.utils, "swap_tensors", lambda _: become):
            yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


@contextmanager
def replaced(owner: Any, values: dict[str, Any]) -> Iterator[None]:
    """A context in which an owner has other values under some names. Classes too, for which `patched` is not made."""
    before = {name: vars(owner).get(name, _ABSENT) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_ABSENT = object()


@contextmanager
def started(count: Callable[[], int]) -> Iterator[None]:
    """A context in which CUDA counts as started, with so many devices, and loaders pin nothing."""
    from torch.utils.data._utils import pin_memory as pinning

    with ExitStack() as entered:
        entered.enter_context(replaced(torch.cuda, {"_lazy_init": _nothing, "_is_compiled": lambda: True}))
        entered.enter_context(replaced(torch._C, {"_cuda_getDeviceCount": count}))
        entered.enter_context(replaced(torch._utils, {"_get_available_device_type": lambda: "cuda"}))
        entered.enter_context(replaced(pinning, {"pin_memory": lambda data, device=None: data}))
        yield


def _nothing(*_: Any, **__: Any) -> None:
    return None


@contextmanager
def autocast_as_cpu() -> Iterator[None]:
    """A context in which `autocast("cuda")` is the CPU's, whose lists a plan replaces by those of CUDA."""
    kind = torch.amp.autocast_mode.autocast
    plain = kind.__init__

    def begin(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        plain(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    asked = ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype")
    with replaced(kind, {"__init__": begin}), replaced(torch, {name: _as_cpu(getattr(torch, name)) for name in asked}):
        yield


def _as_cpu(plain: Any) -> Any:
    def asked(device: Any = None, *args: Any) -> Any:
        return plain(*(() if device is None else ("cpu" if device == "cuda" else device,)), *args)

    return asked


class AnyGenerator(torch._C.Generator):
    """A generator of the host that says it is on the device it was asked for."""

    asked: torch.device

    def __new__(cls, device: Any = "cpu") -> AnyGenerator:
        made = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        made.asked = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it was asked to be."""
        return self.asked
