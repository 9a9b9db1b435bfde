"""Layers: measures the gradient, the update and the activations of every layer in one step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.modules import activation
from torch.nn.modules.module import register_module_forward_hook

from surefoot.techniques.clip import share_held
from surefoot.torch_inside.autograd import in_graph_task
from surefoot.torch_inside.modes import in_transform
from surefoot.trees import local_part, tensors_in
from surefoot.world.device import wide

if TYPE_CHECKING:
    from typing_extensions import Self

    from surefoot.world.world import World

Figures = dict[str, Any]
"""The figures of one layer, by the names of `records.layers.Layer`. None if there is nothing to measure."""
ENDS: Mapping[type[nn.Module], tuple[float, float]] = {nn.Tanh: (-0.99, 0.99), nn.Sigmoid: (0.01, 0.99)}
"""A value at or beyond these is at the end of the range of its function. The slope there is below 0.02."""


class Layers:
    """Enter it around a step to measure that step. It changes no number of the step.

    A layer is a module with trainable parameters of its own, or an activation function. Without `activations`, no
    module is hooked: compiled code keeps its graphs.

    Each optimizer's parameters are copied before its first update. The gradient is that of the last update.

    Without entering it, call `called`, `update_begins` and `update_ends` as they happen, and then `end`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Iterable[torch.optim.Optimizer],
        world: World,
        *,
        activations: bool = True,
    ) -> None:
        self.world, self.optimizers, self._hooks = world, list(optimizers), activations
        self._modules = {module: _plain(name) for name, module in model.named_modules() if _is_layer(module)}
        self._owner: dict[nn.Parameter, str] = {}
        for module, name in self._modules.items():
            for parameter in module.parameters(recurse=False):
                if parameter.requires_grad:
                    self._owner.setdefault(parameter, name)
        self._entered = ExitStack()
        self._forget()

    def _forget(self) -> None:
        self._counts = dict.fromkeys(self._modules.values(), 0)
        self._sums: dict[str, torch.Tensor] = {}
        self._gradients: dict[nn.Parameter, torch.Tensor] = {}
        self._before: dict[nn.Parameter, torch.Tensor] = {}
        self._norms: dict[nn.Parameter, tuple[torch.Tensor, torch.Tensor]] = {}

    def __enter__(self) -> Self:
        self._forget()
        for each in self.optimizers:
            self._entered.callback(each.register_step_pre_hook(self.update_begins).remove)
            self._entered.callback(each.register_step_post_hook(self.update_ends).remove)
        if self._hooks:
            # a hook of a module would take a TransformerEncoderLayer in evaluation mode off its fast path
            self._entered.callback(register_module_forward_hook(self.called).remove)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._entered.close()
        if kind is None:
            self.end()
        self._before = {}

    def end(self) -> None:
        """Compares the parameters with those before the update."""
        with torch.no_grad():
            self._norms = dict(self._changes())

    def called(self, module: nn.Module, _: Any, output: Any) -> None:
        """A module returned an output."""
        name = self._modules.get(module)
        if name is None or in_graph_task() or in_transform():
            return
        values = next((each for each in tensors_in(output) if _can_be_measured(each)), None)
        if values is None:
            return
        with torch.no_grad():
            values = local_part(values.detach())
            found = _sums(values, _ends(module))
            self._sums[name] = self._sums[name] + found if name in self._sums else found
        self._counts[name] += values.numel()

    def update_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Takes the gradients, and copies the parameters."""
        for parameter in self._of(optimizer):
            if parameter.grad is not None:
                self._gradients[parameter] = _norm(parameter.grad)
            if parameter not in self._before:
                self._before[parameter] = local_part(parameter.detach()).clone()

    def update_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Takes the gradients that an optimizer's closure computed."""
        for parameter in self._of(optimizer):
            if parameter.grad is not None and parameter not in self._gradients:
                self._gradients[parameter] = _norm(parameter.grad)

    def _of(self, optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
        for group in optimizer.param_groups:
            yield from (each for each in group["params"] if each in self._owner)

    def _changes(self) -> Iterator[tuple[nn.Parameter, tuple[torch.Tensor, torch.Tensor]]]:
        """The norm of each parameter's change and of its new value. The copy becomes the change: no new memory."""
        for parameter, before in self._before.items():
            now = local_part(parameter.detach())
            yield parameter, (_norm(before.sub_(now)), _norm(now))

    def figures(self, *, gradient_scale: float = 1.0) -> dict[str, Figures]:
        """The figures of every layer over all ranks. All ranks call it. Gradients are multiplied by the scale."""
        places = {name: at for at, name in enumerate(self._counts)}
        table = torch.zeros(len(places), 9, dtype=torch.float64)
        table[:, 0] = torch.tensor(list(self._counts.values()))
        if self._sums:
            table[[places[name] for name in self._sums], 1:5] = torch.stack(list(self._sums.values())).cpu().double()
        self._add_squares(table[:, 5:], places)
        (total,) = self.world.sum(table)
        modules = {name: module for module, name in self._modules.items()}
        return {
            name: _figures(modules[name], row, gradient_scale) for name, row in zip(places, total.tolist(), strict=True)
        }

    def _add_squares(self, table: torch.Tensor, places: dict[str, int]) -> None:
        """Adds for each layer the squares of its gradient, update and weight, and how many gradients it has."""
        numbers = _numbers([*self._gradients.values(), *(each for pair in self._norms.values() for each in pair)])
        for parameter in self._gradients:
            row = table[places[self._owner[parameter]]]
            row[0] += self._share(parameter) * next(numbers) ** 2
            row[3] += 1
        for parameter in self._norms:
            row = table[places[self._owner[parameter]]]
            row[1] += self._share(parameter) * next(numbers) ** 2
            row[2] += self._share(parameter) * next(numbers) ** 2

    def _share(self, parameter: nn.Parameter) -> float:
        """The weight of this rank's piece in a sum over all ranks, where each piece counts once."""
        return share_held(parameter) if isinstance(parameter, DTensor) else 1 / self.world.ranks


def _is_layer(module: nn.Module) -> bool:
    """Whether it has trainable parameters of its own, or is an activation function, of torch or the user."""
    if any(each.requires_grad for each in module.parameters(recurse=False)):
        return True
    if next(module.children(), None) is not None or next(module.parameters(), None) is not None:
        return False
    home = type(module).__module__
    return home == activation.__name__ or not home.startswith("torch.")


def _plain(name: str) -> str:
    """The name of a module without the prefix that torch.compile adds."""
    return name.replace("_orig_mod.", "").removesuffix("_orig_mod")


def _can_be_measured(tensor: torch.Tensor) -> bool:
    """Whether these are plain real numbers. Summands of a tensor that ranks have not added yet are not."""
    if isinstance(tensor, DTensor) and any(placement.is_partial() for placement in tensor.placements):
        return False
    return (
        tensor.is_floating_point() and tensor.layout == torch.strided and not tensor.is_nested and bool(tensor.numel())
    )


def _ends(module: nn.Module) -> tuple[float, float] | None:
    """The ends of the range of an activation function; None if it has none."""
    if isinstance(module, nn.Hardtanh):  # ReLU6 is one
        return module.min_val, module.max_val
    if isinstance(module, nn.Hardsigmoid):
        return 0.0, 1.0
    return next((ends for kind, ends in ENDS.items() if isinstance(module, kind)), None)


def _sums(values: torch.Tensor, ends: tuple[float, float] | None) -> torch.Tensor:
    """The sum of the values and of their squares, and how many are not zero and how many are saturated."""
    count = values.numel()
    large = values if values.element_size() >= 4 else values.float()
    mean = large.mean()
    spread = wide(torch.linalg.vector_norm(large - mean))  # around the mean: a large one costs no digits
    mean = wide(mean)
    inside = (values > ends[0]) & (values < ends[1]) if ends else None
    kept = torch.count_nonzero(values)
    free = kept if inside is None else torch.count_nonzero(inside)
    return torch.stack([mean * count, spread**2 + count * mean**2, wide(kept), wide(free)])


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    """The norm of this rank's part. The rows of a sparse gradient are merged first."""
    part = local_part(tensor)
    part = part.coalesce().values() if part.is_sparse else part
    return torch.linalg.vector_norm(part if part.element_size() >= 4 else part.float())


def _numbers(tensors: list[torch.Tensor]) -> Iterator[float]:
    """The values of single numbers, read from the device at once."""
    return iter(torch.stack([wide(each) for each in tensors]).tolist() if tensors else [])


def _figures(module: nn.Module, row: list[float], gradient_scale: float) -> Figures:
    count, total, squares, kept, free, gradient, update, weight, with_gradient = row
    found: Figures = {"kind": _kind(module)}
    if count:
        mean = total / count
        found |= {
            "mean": mean,
            "deviation": math.sqrt(max(0.0, squares / count - mean**2)) if math.isfinite(mean) else math.nan,
            "zeros": 1 - kept / count,
            "saturated": None if _ends(module) is None else 1 - free / count,
        }
    if with_gradient:
        found["gradient_norm"] = math.sqrt(gradient) * gradient_scale
    if weight or update:
        found["update_ratio"] = math.sqrt(update / weight) if weight else math.inf
    return found


def _kind(module: nn.Module) -> str:
    """The name of the module's class. FSDP makes a class of its own."""
    name = type(module).__name__
    return name.removeprefix("FSDP") if isinstance(cast(Any, module), FSDPModule) else name
