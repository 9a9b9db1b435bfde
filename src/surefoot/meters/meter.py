"""Meter: the interface of every meter, and the mode that shows it every executed operator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from surefoot.events.failsafe import Failsafe
from surefoot.events.listener import Listener
from surefoot.records.tally import Account
from surefoot.torch_inside.modes import TorchDispatchMode, innermost_mode
from surefoot.torch_inside.patches import patched

aten = torch.ops.aten
ASKS_DEVICE = torch.ops.prim.device.default


class Meter(Listener):
    """Counts one resource. `accounts()` returns the counts since the last call."""

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Called after every executed operator."""

    def accounts(self) -> list[Account]:
        """The counts since the last call, by account. Resets them."""
        raise NotImplementedError


class Operators(TorchDispatchMode):
    """Shows every executed operator to the meters. It changes neither operands nor results."""

    def __init__(
        self,
        meters: Sequence[Meter],
        *,
        shards_seen: Callable[[], None] = lambda: None,
        failsafe: Failsafe | None = None,
        failed: Callable[[Any, Exception], None] = lambda func, error: None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.meters = list(meters)
        self.failed = failed
        """Called with an operator and what it raised."""
        self._show = (failsafe or Failsafe(on=False, doing="measuring")).callback(self._shown)
        self.shards_seen = shards_seen
        self.paused = False
        self.in_linear = False

    def is_innermost(self) -> bool:
        """Whether no other mode was entered after this one, so that it can be exited."""
        return innermost_mode() is self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ASKS_DEVICE:
            return args[0].device  # half of all calls on fake tensors, and trivial
        if any(map(_is_wrapper, types)):
            self.shards_seen()
            return NotImplemented  # DTensor and other wrappers: their inner operators are seen later
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():
            with self:
                out = func.decompose(*args, **kwargs)  # autograd would have done it: linear arrives as one operator
            if out is not NotImplemented:
                return out
        try:
            out = _add_in_place(*args) if self.in_linear and _adds_bias(func, args) else func(*args, **kwargs)
        except Exception as error:
            self.failed(func, error)
            raise
        if not self.paused:
            self._show(func, args, kwargs, out)
        return out

    def _shown(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        for meter in self.meters:
            meter.operator(func, args, kwargs, out)


@functools.cache
def _is_wrapper(kind: type) -> bool:
    return hasattr(kind, "__tensor_flatten__")


@contextmanager
def linear_as_ever(operators: Operators) -> Iterator[None]:
    """Keeps `F.linear` on the path that it takes without a dispatch mode.

    Under a dispatch mode, torch adds the bias to a product of three or more dimensions out of place, because of
    tensor subclasses. That allocates one more result. Here the bias is added in place again.
    """

    def make(plain: Any) -> Any:
        def linear(*args: Any, **kwargs: Any) -> Any:
            operators.in_linear = True
            try:
                return plain(*args, **kwargs)
            finally:
                operators.in_linear = False

        return linear

    with patched(torch.nn.functional, "linear", make):
        yield


def _adds_bias(func: Any, args: Any) -> bool:
    if func is not aten.add.Tensor or not isinstance(args[1], torch.Tensor):
        return False  # a tensor subclass inside of `linear` may add a number
    return args[0].dim() > args[1].dim()  # under vmap the bias comes first


def _add_in_place(product: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return aten.add_.Tensor(product, bias).detach()  # another tensor on the same storage, as autograd expects
