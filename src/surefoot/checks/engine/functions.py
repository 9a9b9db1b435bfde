"""Reports every torch function that a loop calls on tensors to the observers that listen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Function
from surefoot.events.forked import only_here
from surefoot.torch_inside.modes import only_function_mode, without_function_mode
from surefoot.torch_inside.patches import patched

DATA: Any = torch.Tensor.data.__get__  # type: ignore[attr-defined]
"""The function that runs when `.data` is read."""


UNHEARD = ("surefoot.checks.", "surefoot.events.", "surefoot.techniques.layers", "torch.optim.")
"""Calls from these modules are not reported. A trailing dot matches everything inside a package."""

_Hearing = list[Callable[..., None]]


class Functions(TorchFunctionMode):
    """Reports every call after it has returned."""

    def __init__(self, scene: Scene, hearing: list[Callable[..., None]]) -> None:
        super().__init__()
        self.scene = scene
        self._tell = scene.failsafe.callback(_tell)
        self._hearing = hearing
        self._of: dict[Function, tuple[_Hearing, _Hearing, _Hearing]] = {}
        """For each function: who hears of it while tensors are read, later, and while data is made."""
        self._learning = False
        """A model was called, or something with a gradient was computed."""

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        scene = self.scene
        if not self._learning:
            # not `grad_fn`: to read it of a view that was made without gradients makes torch refuse writes to the view
            has_gradient = torch.is_grad_enabled() and getattr(out, "requires_grad", False) is True
            self._learning = has_gradient or bool(scene.phases.models)
        made = not self._learning and scene.failsafe.seconds > scene.preparing
        if made or (scene.hurried and scene.phases.fetching):
            return out  # data is made or loaded, often by thousands of small calls
        stage = 1 if not scene.close else 0 if self._learning else 2
        hearing = (self._of.get(func) or self._sort(func))[stage]
        if not hearing or scene.phases.is_deaf or _is_unheard(sys._getframe(1)) or _has_nested(out, *args):
            return out
        self._tell(hearing, func, args, kwargs, out)
        return out

    def _sort(self, func: Function) -> tuple[_Hearing, _Hearing, _Hearing]:
        name = getattr(func, "__name__", "")
        wanted = [each for each in self._hearing if _wants(each, name)]
        later = [each for each in wanted if not _observer(each).reads]
        self._of[func] = wanted, later, [each for each in wanted if not _observer(each).waits]
        return self._of[func]

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Reports calls in this process. What torch computes stays the same."""
        failsafe = self.scene.failsafe
        with only_here(self), self._unnoticed():
            failsafe.mode = self
            try:
                yield
            finally:
                failsafe.show()
                failsafe.mode = None

    @contextmanager
    def _unnoticed(self) -> Iterator[None]:
        """Keeps attention on the path that it takes without this mode.

        `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` leave their fast path in evaluation while any function
        mode is on. On the other path the last bits differ, and a row that is all padding is not NaN.
        """

        def make(plain: Callable[[Iterable[Any]], bool]) -> Callable[[Iterable[Any]], bool]:
            def asked(args: Iterable[Any]) -> bool:
                if only_function_mode() is not self:
                    return plain(args)
                with without_function_mode():
                    return plain(args)

            return asked

        with patched(torch.overrides, "has_torch_function", make):
            yield


def _tell(hearing: list[Callable[..., None]], *call: Any) -> None:
    for called in hearing:
        called(*call)


def _wants(called: Callable[..., None], name: str) -> bool:
    """Is this the method of an observer that hears of functions with this name?"""
    functions = _observer(called).functions
    return functions is None or name in functions


def _observer(called: Callable[..., None]) -> Observer | type[Observer]:
    """The observer whose method this is; the class of all if it is a plain function."""
    found: Observer | type[Observer] = getattr(called, "__self__", Observer)
    return found


def _has_nested(*given: object) -> bool:
    """Nested tensors, which the fast path makes of padded rows, have no shape to look at."""
    for each in given:  # noqa: SIM110
        if isinstance(each, torch.Tensor) and each.is_nested:
            return True
    return False


def _is_unheard(frame: FrameType) -> bool:
    """Does the call come from surefoot itself or from an optimizer's update, instead of the loop?"""
    module = frame.f_globals.get("__name__", "")
    return module.startswith(UNHEARD) and module != "torch.optim.swa_utils"
