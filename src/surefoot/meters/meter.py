"""Meter: what every meter can do, and the mode that shows it every operator that is executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from surefoot.phases import Listener
from surefoot.records.tally import Account


class Meter(Listener):
    """Counts one resource. `accounts()` tells what was counted since it was last asked."""

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator has been executed."""

    def accounts(self) -> list[Account]:
        """What was counted since the last call, by account; counting starts again from nothing."""
        raise NotImplementedError


class Operators(TorchDispatchMode):
    """Shows every executed operator to the meters. It changes neither operands nor results."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        super().__init__()
        self.meters = list(meters)
        self.paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # DTensor and its like: their inner operators come by again
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self.paused:
            for meter in self.meters:
                meter.operator(func, args, kwargs, out)
        return out


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors_in(item)
