"""Notes what every module of a step was called with and returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.autograd_graph import nodes
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.records.looked import Form, LookedModule
from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.torch_inside.storages import identity_of
from surefoot.trees import plain, tensors_in


@dataclass
class Called:
    """A module, what its first call was given and returned, and how often it was called."""

    module: nn.Module
    given: list[torch.Tensor]
    returned: list[torch.Tensor]
    calls: int = 1


class Modules(Listener):
    """The calls of modules in forwards with gradients. It keeps their tensors until the step ends."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self.called: dict[str, Called] = {}
        self.losses: list[torch.Tensor] = []
        """Those of the first backward."""
        self.graph: list[tuple[torch.autograd.graph.Node, str]] = []
        """The nodes behind them, each with the module that made it."""

    def module_called(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.is_grad_enabled() or self._phases.recomputing():
            return
        name = self._phases.names.get(module)
        if name is None:
            return
        if name in self.called:
            self.called[name].calls += 1
        else:
            self.called[name] = Called(module, list(tensors_in(args)), list(tensors_in(_parts(output))))

    def backward_begins(self, losses: Any) -> None:
        if self.losses:
            return
        self.losses = list(tensors_in(losses))
        roots = [loss.grad_fn for loss in self.losses if loss.grad_fn is not None]
        self.graph = [(node, self._phases.maker(node)) for node in nodes(roots)]

    def modules(self) -> list[LookedModule]:
        """Every module that ran, in the order of the model."""
        names = [name for name in self._phases.names.values() if name in self.called]
        return [_looked(name, self.called[name]) for name in dict.fromkeys(names)]


def _parts(output: Any) -> Any:
    """The fields of a data class such as those of transformers, which are dicts too."""
    return output if not hasattr(output, "__dataclass_fields__") or isinstance(output, dict) else vars(output)


def _looked(name: str, called: Called) -> LookedModule:
    own = list(called.module.parameters(recurse=False))
    return LookedModule(
        name,
        type(called.module).__name__,
        tuple(map(form_of, called.returned)),
        called.calls,
        sum(each.numel() for each in own),
        sum(each.numel() for each in own if each.requires_grad),
    )


def form_of(tensor: torch.Tensor) -> Form:
    """The shape, number format, device and strides of a tensor."""
    strides = None
    if tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_contiguous():
        strides = tuple(tensor.stride())
    shape = () if tensor.is_nested else tuple(tensor.shape)
    return Form(shape, str(tensor.dtype).removeprefix("torch."), str(tensor.device), strides)


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    """The address and the bytes of a tensor's storage; (0, 0) if it has none of its own."""
    part = next(plain(tensor), None)
    if part is None or part.layout != torch.strided or part.is_nested:
        return 0, 0
    storage = part.untyped_storage()
    address = identity_of(storage) if isinstance(part, FakeTensor) else storage.data_ptr()  # a fake one has no memory
    return address, storage.nbytes()
