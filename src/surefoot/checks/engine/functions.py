"""Reports every torch function that a loop calls on tensors to the observers that listen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Function

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
        if not self.scene.phases.is_deaf and not _is_unheard(sys._getframe(1)):
            self._tell(func, args, kwargs, out)
        return out

    def _told(self, func: Function, args: object, kwargs: object, out: object) -> None:
        for called in self._hearing:
            called(func, args, kwargs, out)


def _is_unheard(frame: FrameType) -> bool:
    """Does the call come from surefoot itself or from an optimizer's update, instead of the loop?"""
    module = frame.f_globals.get("__name__", "")
    return module.startswith(UNHEARD) and module != "torch.optim.swa_utils"
