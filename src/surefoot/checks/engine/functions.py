"""Reports every torch function that a loop calls on tensors to the observers that listen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Function
from surefoot.events.autograd import only_function_mode, without_function_mode
from surefoot.events.forked import only_here

DATA: Any = torch.Tensor.data.__get__  # type: ignore[attr-defined]
"""The function that runs when `.data` is read."""


UNHEARD = ("surefoot.checks.", "surefoot.events.", "torch.optim.")
"""Calls from these modules are not reported. A trailing dot matches everything inside a package."""


class Functions(TorchFunctionMode):
    """Reports every call after it has returned."""

    def __init__(self, scene: Scene, hearing: list[Callable[..., None]]) -> None:
        super().__init__()
        self.scene = scene
        self._tell = scene.failsafe.callback(self._told)
        self._hearing = hearing

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self.scene.phases.is_deaf and not _is_unheard(sys._getframe(1)) and not _has_nested(*args, out):
            self._tell(func, args, kwargs, out)
        return out

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Reports calls in this process. What torch computes stays the same."""
        with only_here(self), self._unnoticed():
            yield

    @contextmanager
    def _unnoticed(self) -> Iterator[None]:
        """Keeps attention on the path that it takes without this mode.

        `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` leave their fast path in evaluation while any function
        mode is on. On the other path the last bits differ, and a row that is all padding is not NaN.
        """
        plain = torch.overrides.has_torch_function

        def asked(args: Iterable[Any]) -> bool:
            if only_function_mode() is not self:
                return plain(args)
            with without_function_mode():
                return plain(args)

        torch.overrides.has_torch_function = asked
        try:
            yield
        finally:
            torch.overrides.has_torch_function = plain

    def _told(self, func: Function, args: object, kwargs: object, out: object) -> None:
        for called in self._hearing:
            called(func, args, kwargs, out)


def _has_nested(*given: object) -> bool:
    """Nested tensors, which the fast path makes of padded rows, have no shape to look at."""
    return any(isinstance(each, torch.Tensor) and each.is_nested for each in given)


def _is_unheard(frame: FrameType) -> bool:
    """Does the call come from surefoot itself or from an optimizer's update, instead of the loop?"""
    module = frame.f_globals.get("__name__", "")
    return module.startswith(UNHEARD) and module != "torch.optim.swa_utils"
