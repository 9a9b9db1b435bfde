"""Finds the operation that first makes NaN or infinity of finite numbers, and the line of user code that runs it."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.debug.errors.rerun_lines import running_line
from surefoot.records.explanation import Place
from surefoot.trees import tensors_in


class NonfiniteOperation(TorchFunctionMode):
    """Looks at the result of every operation inside until one is not finite. It reads values and changes none."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self._is_found = "", False
        self.place: Place | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self._is_found and any(map(_is_nonfinite, tensors_in(out))):
            self._is_found = True
            if not any(map(_is_nonfinite, tensors_in((args, kwargs or {})))):
                self.name, (self.place, _) = getattr(func, "__name__", str(func)), running_line()
        return out

    def sentence(self) -> str:
        """What was found; empty if nothing was, or no line of user code runs it."""
        if self.place is None:
            return ""
        at = f"{os.path.basename(self.place.file)}:{self.place.line}"
        return f" `{self.name}` at {at} is the first operation that makes it of finite numbers."


def _is_nonfinite(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.dtype.is_floating_point:
        return False
    return not bool(torch.isfinite(tensor.detach()).all())  # inside a function mode, that mode is off
