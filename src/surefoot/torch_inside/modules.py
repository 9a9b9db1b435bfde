"""Modules: the tables in which `nn.Module` and tensors keep children, parameters, buffers and hooks.

The public iterators (`named_children`, `named_parameters`) leave out what appears twice and what is None.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks_with_kwargs


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """The table of children, to read or to change."""
    return module._modules


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The table of a module's own parameters."""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """The table of a module's own buffers."""
    return module._buffers


TABLES = ("_parameters", "_buffers", "_modules")
"""The attributes under which a module keeps these tables."""


def unsaved_buffers(module: nn.Module) -> set[str]:
    """The names of a module's own buffers that its state dict leaves out."""
    return module._non_persistent_buffers_set


def save_own_tensors(module: nn.Module, destination: Any, prefix: str, keep_vars: bool) -> None:
    """Writes a module's own parameters and buffers to a state dict, whatever its class writes there."""
    nn.Module._save_to_state_dict(module, destination, prefix, keep_vars)


def hooks_of(tensor: torch.Tensor) -> int:
    """How many hooks of a backward a tensor has."""
    return len(tensor._backward_hooks or ()) + len(tensor._post_accumulate_grad_hooks or ())


def forget_forward_hook(number: int) -> None:
    """Removes what a global forward hook with keyword arguments leaves behind: torch.compile would warn of it."""
    _global_forward_hooks_with_kwargs.pop(number, None)
