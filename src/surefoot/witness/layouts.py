"""Layouts: how models are built, and which of their tensors training changed unseen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.checks.evidence import HiddenModule, Layout
from surefoot.phases import aside, number
from surefoot.witness.calls import is_batch_norm
from surefoot.witness.graph import linearly_made, through_views
from surefoot.witness.scene import Part, Scene, fingerprint, readable

_MULTIPLYING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
_LARGEST_GAIN = 20.0
"""By which a layer may multiply at first; every scheme of torch's stays below 5 at any width."""


class Layouts(Part):
    """The modules and tensors of every model that ran."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._layouts: dict[nn.Module, Layout] = {}
        self._unsaved: dict[nn.Module, dict[str, tuple[tuple[int, ...], int]]] = {}
        self._fewest: dict[nn.Module, tuple[int, str]] = {}
        self._frozen_norms: dict[str, None] = {}
        self._returned: dict[int, nn.Linear] = {}
        """Of the model that runs: the linear layers, by the number of the node that made what they returned."""
        self._in_a_row: dict[str, None] = {}
        self._found_in_update: set[nn.Module] = set()
        """Models that first ran in a closure: when their weights are read, these are trained already."""

    def model_found(self, model: nn.Module, prefix: str) -> None:
        if self.scene.updating is not None:
            self._found_in_update.add(model)
        self._unsaved[model] = {name: _print(each) for name, each in _unsaved(model) if readable(each)}

    def model_called(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        self._returned = {}

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Weights are read once, before the first update."""
        for model in self.scene.phases.models:
            if model not in self._layouts:
                self._layouts[model] = self._built(model)

    def module_called(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if type(module) is nn.Linear and self.scene.close:
            self._follows(module, args[0] if args else None)
            made = through_views(output.grad_fn)
            if made is not None and not hasattr(made, "variable"):
                self._returned[number(made)] = module
        if not is_batch_norm(module) or not module.training or not torch.is_grad_enabled():
            return
        name = self.scene.phases.names.get(module, type(module).__name__)
        parameters = list(module.parameters())
        if parameters and not any(each.requires_grad for each in parameters) and module.track_running_stats:
            self._frozen_norms[name] = None
        entered = args[0] if args else None
        if isinstance(entered, torch.Tensor) and entered.dim() >= 2 and not self.scene.tiny:
            count = entered.numel() // entered.shape[1]
            fewest, _ = self._fewest.get(module, (count + 1, ""))
            if count < fewest:
                self._fewest[module] = count, name

    def _follows(self, second: nn.Linear, entered: Any) -> None:
        """Two linear layers in a row are one, unless what is between them is narrower than both ends."""
        made = linearly_made(entered.grad_fn) if isinstance(entered, torch.Tensor) else None
        first = None if made is None or hasattr(made, "variable") else self._returned.get(number(made))
        if first is None:
            return
        wide = first.out_features >= min(first.in_features, second.out_features)
        trained = first.weight.requires_grad and second.weight.requires_grad
        if wide and trained and first is not second and torch.is_grad_enabled():
            names = self.scene.phases.names
            self._in_a_row[f"{names.get(first, 'a layer')} and {names.get(second, 'the next')}"] = None

    def _built(self, model: nn.Module) -> Layout:
        layout = Layout(self.scene.name(model))
        layout.repeated_layers = tuple(_repeated(model))
        layout.coarse_positions = tuple(
            name
            for name, each in model.named_buffers()
            if "inv_freq" in name and each.dtype in (torch.float16, torch.bfloat16)
        )
        layout.far_off = () if model in self._found_in_update else tuple(_far_off(model))
        looked_up = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
        matrices = [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.dim() >= 2 and readable(p)]
        with aside():
            layout.copied_ties = tuple(_copied_ties(model))
            computing = [p for _, p in matrices if p not in looked_up] or [p for _, p in matrices]
            constant = [p for p in computing if p.numel() > 1 and bool((p == p.flatten()[0]).all())]
            layout.matrices, layout.constant_matrices = len(computing), len(constant)
            layout.alike_rows = tuple(name for name, p in matrices if _alike(p))
        return layout

    def layouts(self) -> Iterator[Layout]:
        for model, layout in self._layouts.items():
            before, now = self._unsaved.get(model, {}), dict(_unsaved(model))
            layout.lost_state = tuple(
                name
                for name, (shape, print_) in before.items()
                if name in now and readable(now[name]) and _print(now[name]) != (shape, print_)
                and tuple(now[name].shape) == shape and now[name].is_floating_point()
            )  # fmt: skip
            kept = (
                (n, each) for n, each in _unregistered(model) if each.is_floating_point() or each.dtype == torch.bool
            )
            layout.unregistered = tuple(name for name, _ in kept)
            layout.running_frozen, layout.in_a_row = tuple(self._frozen_norms), tuple(self._in_a_row)
            if self._fewest:
                layout.fewest_per_channel, layout.few_in = min(self._fewest.values())
            yield layout

    def hidden_modules(self) -> Iterator[HiddenModule]:
        optimized = self.scene.optimized()
        for model, prefix in self.scene.phases.models.items():
            registered = set(model.modules())
            for owner, module in model.named_modules():
                for path, hidden in _contained(module):
                    trainable = [p for p in hidden.parameters() if p.requires_grad]
                    if hidden not in registered and trainable:
                        yield HiddenModule(
                            path=f"{prefix}{owner}.{path}".lstrip("."),
                            kind=type(hidden).__name__,
                            parameters=sum(p.numel() for p in trainable),
                            reached=any(p in self.scene.reached for p in trainable),
                            optimized=any(p in optimized for p in trainable),
                        )


def _print(tensor: torch.Tensor) -> tuple[tuple[int, ...], int]:
    return tuple(tensor.shape), fingerprint(tensor)


def _unregistered(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that are plain attributes of a module."""
    for owner, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not value.requires_grad and value.numel() > 1:
                yield f"{owner}.{name}".lstrip("."), value


def _unsaved(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that no state_dict holds: plain attributes, and buffers that are not persistent."""
    yield from _unregistered(model)
    saved = model.state_dict(keep_vars=True)
    yield from ((name, each) for name, each in model.named_buffers() if name not in saved)


def _repeated(model: nn.Module) -> Iterator[str]:
    """Containers that hold one layer with parameters several times."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            layers = [each for each in module if next(each.parameters(), None) is not None]
            if len(set(layers)) < len(layers):
                yield name or type(module).__name__


def _far_off(model: nn.Module) -> Iterator[str]:
    """Layers whose weights make what they are given many times as large, or that look up numbers so large."""
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if not isinstance(module, _MULTIPLYING) or not readable(weight) or not weight.requires_grad:
            continue
        inputs = 1 if isinstance(module, nn.Embedding) else weight[0].numel()
        with aside():
            gain = float(weight.float().square().mean().sqrt()) * math.sqrt(inputs)
        if gain > _LARGEST_GAIN:
            yield f"{name or type(module).__name__} ({gain:.0f} times)"


def _copied_ties(model: nn.Module) -> Iterator[str]:
    """Output layers that begin with the values of an embedding and do not share them."""
    embeddings = [(n, m.weight) for n, m in model.named_modules() if isinstance(m, nn.Embedding)]
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or not readable(module.weight):
            continue
        for other, weight in embeddings:
            if (
                readable(weight) and weight.shape == module.weight.shape
                and weight.data_ptr() != module.weight.data_ptr() and torch.equal(weight, module.weight)
                and not bool((weight == weight.flatten()[0]).all())
            ):  # fmt: skip
                yield f"{name} and {other}"


def _alike(matrix: torch.Tensor) -> bool:
    """A matrix whose rows are all the same, and not zero."""
    rows = matrix.flatten(1)
    return rows.shape[0] >= 4 and rows.shape[1] >= 2 and bool((rows == rows[:1]).all()) and bool((rows != 0).any())


def _contained(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in the plain lists, tuples, sets and dicts among a module's own attributes."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, list | tuple | set):
            items: Any = enumerate(value)
        elif isinstance(value, dict):
            items = value.items()
        else:
            continue
        for key, item in items:
            if isinstance(item, nn.Module):
                yield f"{name}[{key!r}]", item
