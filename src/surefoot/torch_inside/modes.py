"""Modes: which dispatch and function modes are on, and contexts in which none of them sees what runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)

__all__ = [
    "TorchDispatchMode",
    "aside",
    "hide_function_mode",
    "in_transform",
    "innermost_mode",
    "modes_are_on",
    "only_function_mode",
    "show_function_mode",
    "unseen",
    "without_function_mode",
    "without_modes",
]


def modes_are_on() -> bool:
    """Is any dispatch mode on?"""
    return bool(_get_current_dispatch_mode_stack())


def innermost_mode() -> Any:
    """The dispatch mode that was entered last; None outside of all modes."""
    modes = _get_current_dispatch_mode_stack()
    return modes[-1] if modes else None


def without_modes() -> AbstractContextManager[Any]:
    """Inside, all dispatch modes are off: neither meters nor fake tensors see what runs."""
    return _disable_current_modes()


def unseen() -> AbstractContextManager[Any]:
    """Like `without_modes`, and free where no mode is on."""
    return _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext()


def only_function_mode() -> Any:
    """The function mode that is on, if it is the only one."""
    return torch._C._get_function_stack_at(0) if torch._C._len_torch_function_stack() == 1 else None


def without_function_mode() -> AbstractContextManager[Any]:
    """Inside, the function mode that was entered last is off."""
    return torch.overrides._pop_mode_temporarily()


def hide_function_mode(mode: Any) -> bool:
    """Takes a function mode off the stack, if it is the one that was entered last. Returns whether it was."""
    entered = torch._C._len_torch_function_stack()
    if not entered or torch._C._get_function_stack_at(entered - 1) is not mode:
        return False
    torch._C._pop_torch_function_stack()
    return True


def show_function_mode(mode: Any) -> None:
    """Puts a hidden function mode back on the stack."""
    torch._C._push_on_torch_function_stack(mode)


def in_transform() -> bool:
    """Does code run inside `torch.func.vmap`, `grad` or the like, where tensors have no memory of their own?"""
    return torch._C._functorch.peek_interpreter_stack() is not None


class aside:
    """Inside, computations are hidden from dispatch modes and build no graph.

    A class, because it is entered hundreds of times in a step: a generator takes twice as long.
    """

    __slots__ = ("_functions", "_grad", "_modes")

    def __enter__(self) -> None:
        self._modes: Any = _disable_current_modes() if _get_current_dispatch_mode_stack() else None
        if self._modes is not None:
            self._modes.__enter__()
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *raised: Any) -> None:
        torch._C._set_grad_enabled(self._grad)
        self._functions.__exit__(*raised)
        if self._modes is not None:
            self._modes.__exit__(*raised)
