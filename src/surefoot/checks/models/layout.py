"""Records how a model is built, and which of its tensors training changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

from surefoot.checks.engine.autograd_graph import linearly_made, through_views
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, readable
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import Layout, ModelFacts
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.loop.modes import is_batch_norm
from surefoot.checks.models.tied_weights import TiedWeights, copied_ties, undone_ties
from surefoot.checks.models.unsaved_numbers import Numbers, numbers_of
from surefoot.torch_inside.autograd import number
from surefoot.torch_inside.modes import aside
from surefoot.torch_inside.modules import children_of

_MULTIPLYING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
_ENOUGH = 4
"""After this many updates, layers that began as zero next to others have moved."""
_LARGEST_GAIN = 20.0
"""The largest initial gain of a layer. Every scheme of torch stays below 5 at any width."""
_LARGEST_LOOKED_UP = 5.0
"""The largest initial size of numbers in an embedding. Torch's own have 1."""

_LOUD_GAIN = 4.5
"""The largest initial gain of most layers in a chain. A standard deviation of 1 at a width of 24 exceeds it."""

_LARGEST_SHIFT = 5.0
"""The largest gain for inputs of one sign, if most weights have one sign, too, for example drawn from 0 to 1."""

_LEAST_GAIN = 5e-3
"""The smallest initial gain of a layer. A standard deviation of 0.02 gives 0.08 at a width of 16."""


_LOOKS = 256
"""The number of forwards before which unsaved tensors of a model are read."""


class Layouts(Observer):
    """Records the modules and tensors of every model that ran."""

    after = (Forwards, Gradients)

    def __init__(self, scene: Scene, ties: TiedWeights) -> None:
        super().__init__(scene)
        self.ties = ties
        self._layouts: dict[nn.Module, Layout] = {}
        self._unsaved: dict[nn.Module, dict[str, tuple[tuple[int, ...], int]]] = {}
        self._looks: Counter[nn.Module] = Counter()
        self._changed: dict[nn.Module, set[str]] = {}
        self._begun_anew: dict[nn.Module, set[str]] = {}
        """Unsaved tensors that had changed and were then reset. `_changed` holds all that had changed."""
        self._numbers: dict[nn.Module, Numbers] = {}
        """Plain numbers among the attributes of modules, before the first forward."""
        self._fewest: dict[nn.Module, tuple[int, str]] = {}
        self._frozen_norms: dict[str, tuple[torch.Tensor | None, int]] = {}
        """Frozen BatchNorm layers that run in training mode, with a hash of their weight."""
        self._still_norms: dict[str, bool] = {}
        """BatchNorm layers of a model in training mode: whether they always ran in evaluation mode while trained."""
        self._returned: dict[int, nn.Linear] = {}
        """In the running model: the linear layers, by the graph number of their output."""
        self._in_a_row: dict[str, None] = {}
        self._running: nn.Module | None = None
        self._times: Counter[nn.Module] = Counter()
        """In the running model: how often each layer with a weight matrix ran."""
        self._twice: set[nn.Module] = set()
        self._began: dict[nn.Module, list[tuple[str, torch.Tensor, float]]] = {}
        """Weight matrices that began as a constant."""
        self._gains: dict[nn.Module, list[tuple[str, torch.Tensor]]] = {}
        """Matrices whose rows began equal and that no layer sums over: tables and gains."""
        self._found_in_update: set[nn.Module] = set()
        """Models that first ran in a closure. Their weights are already trained when they are read."""

    def model_found(self, model: nn.Module, prefix: str) -> None:
        if self.scene.updating is not None:
            self._found_in_update.add(model)
        self._numbers[model] = numbers_of(model)
        self._unsaved[model] = {name: _print(each) for name, each in unsaved(model) if readable(each)}

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._returned = {}
        self._running = model
        self._times.clear()
        self._see_begun_anew(model)

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Reads weights once, before the first update."""
        for model in self.scene.phases.models:
            if model not in self._layouts:
                self._layouts[model] = self._built(model)

    def module_called(self, module: nn.Module, args: Args, output: Any) -> None:
        if isinstance(module, _MULTIPLYING):
            self._times[module] += 1
            if self._times[module] > 1:
                self._twice.add(module)
        if type(module) is nn.Linear and self.scene.close:
            self._follows(module, args[0] if args else None)
            made = through_views(output.grad_fn)
            if made is not None and not hasattr(made, "variable"):
                self._returned[number(made)] = module
        if not is_batch_norm(module):
            return
        if self.scene.close and torch.is_grad_enabled():
            self._note_still(module)
        if not module.training:
            return
        name = self.scene.phases.names.get(module, type(module).__name__)
        if module.track_running_stats and module.momentum is not None and self._is_frozen(module):
            weight = next(module.parameters(), None)
            self._frozen_norms.setdefault(name, (weight, 0 if weight is None else fingerprint(weight)))
        if not torch.is_grad_enabled():
            return
        entered = args[0] if args else None
        if isinstance(entered, torch.Tensor) and entered.dim() >= 2:
            count = int(entered.numel() // entered.shape[1] * self.scene.cut_from)
            fewest, _ = self._fewest.get(module, (count + 1, ""))
            if count < fewest:
                self._fewest[module] = count, name

    def _note_still(self, norm: nn.Module) -> None:
        """In a model in training mode: does a trained norm, and the module around it, run in evaluation mode?"""
        model, name = self._running, self.scene.phases.names.get(norm, "")
        if model is None or not model.training or not name:
            return
        holder = name.removeprefix(self.scene.phases.models.get(model, "")).rpartition(".")[0]
        with suppress(AttributeError):
            around = model.get_submodule(holder)
            trained = any(each.requires_grad for each in norm.parameters())
            still = trained and not norm.training and not around.training and around is not model
            self._still_norms[name] = still and self._still_norms.get(name, True)

    def _is_frozen(self, norm: nn.Module) -> bool:
        """Are its parameters frozen, or those of the module around it?"""
        model = self._running
        if model is None:
            return False
        if not torch.is_grad_enabled() and not any(each.requires_grad for each in model.parameters()):
            return False  # this network is only evaluated
        parameters = list(norm.parameters())
        if not parameters:
            holder = self.scene.phases.names.get(norm, "").removeprefix(self.scene.phases.models.get(model, ""))
            with suppress(AttributeError):
                parameters = list(model.get_submodule(holder.rpartition(".")[0]).parameters())
        return bool(parameters) and not any(each.requires_grad for each in parameters)

    def _follows(self, second: nn.Linear, entered: Any) -> None:
        """Two linear layers in a row are one layer, unless the middle is narrower than both ends."""
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
        looked_up = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
        layers = {p for m in model.modules() if isinstance(m, _MULTIPLYING) for p in m.parameters(recurse=False)}
        trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.dim() >= 2 and readable(p)]
        matrices = [(n, p) for n, p in trained if p in layers or min(p.shape) > 1]  # else plain vectors
        weights = _weights_of(model)
        values = _values_of([*(p for _, p in matrices), *weights.values()])
        layout.far_off = () if model in self._found_in_update else tuple(_far_off(weights, values))
        with aside():
            layout.copied_ties = (*copied_ties(model), *undone_ties(model))
            computing = [p for _, p in matrices if p not in looked_up] or [p for _, p in matrices]
            constant = [p for p in computing if p.numel() > 1 and values[p].constant]
            layout.matrices, layout.constant_matrices = len(computing), len(constant)
            self._began[model] = [(n, p, values[p].least) for n, p in matrices if any(p is c for c in constant)]
            drawn = {(name.rpartition(".")[0], p.shape) for name, p in matrices if not values[p].alike}
            alike = [(name, p) for name, p in matrices if values[p].alike]
            alike = [(n, p) for n, p in alike if (n.rpartition(".")[0], p.shape) not in drawn]  # else scales of weights
            summing = layers - looked_up
            layout.alike_rows = tuple(name for name, p in alike if p in summing)
            self._gains[model] = [(name, p) for name, p in alike if p not in summing]
            gains = [values[p].size * math.sqrt(p[0].numel() if p in layers else min(p.shape)) for p in computing]
            layout.faint = sum(0 < gain < _LEAST_GAIN for gain in gains)
            layout.loud = 0 if model in self._found_in_update else sum(gain > _LOUD_GAIN for gain in gains)
        return layout

    def first_numbers(self, model: nn.Module) -> Numbers:
        return self._numbers.get(model, {})

    def _stuck(self, model: nn.Module) -> Iterator[str]:
        """Matrices that began as a constant and never moved, or whose rows stayed equal."""
        if self.scene.updates < _ENOUGH:
            return
        with aside():
            for name, p, first in self._began.get(model, ()):
                if p in self.scene.trained and p in self.scene.reached and (bool((p == first).all()) or _alike(p)):
                    yield name

    def _still_alike(self, model: nn.Module, known: tuple[str, ...]) -> Iterator[str]:
        """Tables and gains whose rows are still equal after training."""
        if self.scene.updates >= _ENOUGH:
            with aside():
                gains = self._gains.get(model, ())
                yield from (name for name, p in gains if name not in known and p in self.scene.reached and _alike(p))

    def lost_state(self, model: nn.Module) -> tuple[str, ...]:
        """Tensors that training changed and that no state_dict contains."""
        before, now = self._unsaved.get(model, {}), dict(unsaved(model))
        alike = [name for name in before if name in now and readable(now[name]) and now[name].is_floating_point()]
        return tuple(
            name
            for name in alike
            if tuple(now[name].shape) == before[name][0]
            and _print(now[name]) != before[name]
            and name not in self._begun_anew.get(model, ())
        )

    def _see_begun_anew(self, model: nn.Module) -> None:
        """Finds tensors that changed and then returned to their first values: every pass resets them."""
        before = self._unsaved.get(model, {})
        if not before or self._looks[model] >= _LOOKS:
            return
        self._looks[model] += 1
        changed, anew = self._changed.setdefault(model, set()), self._begun_anew.setdefault(model, set())
        now = {name: each for name, each in unsaved(model) if name in before and readable(each)}
        same = {name for name, each in now.items() if _print(each) == before[name]}
        anew |= same & changed
        changed |= set(now) - same

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(layouts=tuple(self._completed()))

    def _completed(self) -> Iterator[Layout]:
        for model, layout in self._layouts.items():
            layout.lost_state = self.lost_state(model)
            layout.unregistered = (*(name for name, _ in _unregistered(model)), *_in_containers(model))
            layout.repeated_layers += tuple(name for name, each in _aliases(model) if each in self._twice)
            layout.stuck = tuple(self._stuck(model))
            layout.alike_rows += tuple(self._still_alike(model, layout.alike_rows))
            zeros = all(not first for *_, first in self._began.get(model, ()))
            layout.leaves_zero = zeros and self.scene.updates >= _ENOUGH and not layout.stuck
            layout.copied_ties += tuple(name for name in self.ties.undone(model) if name not in layout.copied_ties)
            layout.running_frozen, layout.in_a_row = tuple(self._stay_frozen()), tuple(self._in_a_row)
            layout.still_norms = tuple(name for name, still in self._still_norms.items() if still)
            if self._fewest:
                layout.fewest_per_channel, layout.few_in = min(self._fewest.values())
            yield layout

    def _stay_frozen(self) -> Iterator[str]:
        """Frozen norms whose weights did not change. The weights of a teacher follow a student."""
        for name, (weight, before) in self._frozen_norms.items():
            if weight is None or fingerprint(weight) == before:
                yield name


def _print(tensor: torch.Tensor) -> tuple[tuple[int, ...], int]:
    return tuple(tensor.shape), fingerprint(tensor)


def _unregistered(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that are plain attributes of a module."""
    for owner, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not value.requires_grad and value.dim():
                yield f"{owner}.{name}".lstrip("."), value


def _in_containers(model: nn.Module) -> Iterator[str]:
    """Plain lists, tuples and dicts of a module that hold such tensors."""
    for owner, module in model.named_modules():
        for name, value in vars(module).items():
            items = list(value.values()) if isinstance(value, dict) else value
            if not name.startswith("_") and isinstance(items, list | tuple):
                kept = [each for each in items[:64] if isinstance(each, torch.Tensor) and not each.requires_grad]
                if any(each.dim() for each in kept):
                    yield f"{owner}.{name}".lstrip(".")


def unsaved(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that no state_dict contains: plain attributes and non-persistent buffers."""
    yield from _unregistered(model)
    saved = model.state_dict(keep_vars=True)
    yield from ((name, each) for name, each in model.named_buffers() if name not in saved)


def _repeated(model: nn.Module) -> Iterator[str]:
    """Containers that hold one layer with parameters several times, directly or inside other modules."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential) or (isinstance(module, nn.ModuleDict) and len(module) > 2):
            children = list(children_of(module).values())  # `children()` skips repeated ones
            held = [set(_multiplying(each)) for each in children if each is not None]
            if sum(map(len, held)) > len(set().union(*held)):
                yield name or type(module).__name__


def _multiplying(module: nn.Module) -> Iterator[tuple[str, str, nn.Parameter]]:
    """The parameters of a module, with the class of their owner. Skips embeddings and activations: they may be
    shared.
    """
    for each in module.modules():
        if not isinstance(each, nn.Embedding | nn.PReLU):
            yield from ((type(each).__name__, name, p) for name, p in each.named_parameters(recurse=False))


def _aliases(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that a module holds under two names."""
    for name, module in model.named_modules():
        layers = [each for each in children_of(module).values() if isinstance(each, _MULTIPLYING)]
        yield from ((name or type(module).__name__, each) for each in set(layers) if layers.count(each) > 1)


class _Values(NamedTuple):
    """What is read of a weight before the first update."""

    size: float
    """The root mean square."""
    mean: float
    least: float
    most: float
    alike: bool

    @property
    def spread(self) -> float:
        return math.sqrt(max(0.0, self.size**2 - self.mean**2))

    @property
    def constant(self) -> bool:
        return self.least == self.most


def _values_of(weights: Iterable[torch.Tensor]) -> dict[torch.Tensor, _Values]:
    """Reads weights, all of them with one wait for a device."""
    some = list(dict.fromkeys(weights))
    with aside():
        read = iter(HOST.fresh([value for each in some for value in (*_numbers(each), _are_alike(each))]))
        found = [[float(next(read)) for _ in range(5)] for _ in some]
    return {
        each: _Values(length / math.sqrt(each.numel()), mean, least, most, bool(alike) and (least != 0 or most != 0))
        for each, (length, mean, least, most, alike) in zip(some, found, strict=True)
    }


def _numbers(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    """Reductions only: on a device nothing as large as the weight is made."""
    values = weight.detach()
    yield torch.linalg.vector_norm(values, dtype=torch.float32)
    yield values.mean(dtype=torch.float32)
    yield from values.aminmax()


def _weights_of(model: nn.Module) -> dict[tuple[str, nn.Module], torch.Tensor]:
    """The trained weights of layers that multiply, and of embeddings, by the name of the layer."""
    layers = ((name, each) for name, each in model.named_modules() if isinstance(each, _MULTIPLYING))
    found: dict[tuple[str, nn.Module], Any] = {(name, each): getattr(each, "weight", None) for name, each in layers}
    return {key: weight for key, weight in found.items() if readable(weight) and weight.requires_grad}


def _far_off(weights: dict[tuple[str, nn.Module], torch.Tensor], values: dict[torch.Tensor, _Values]) -> Iterator[str]:
    """Layers whose initial weights make their input many times larger, or embeddings with such large numbers."""
    for (name, module), weight in weights.items():
        looked_up = isinstance(module, nn.Embedding)
        inputs = 1 if looked_up else weight[0].numel()
        gain, mean, spread = values[weight].size * math.sqrt(inputs), abs(values[weight].mean), values[weight].spread
        shift = mean * inputs if 0.1 * mean < spread < 1.4 * mean and weight.numel() >= 64 else 0.0
        if gain > (_LARGEST_LOOKED_UP if looked_up else _LARGEST_GAIN) or shift > _LARGEST_SHIFT:
            yield f"{name or type(module).__name__} ({max(gain, shift):.0f} times)"


def _alike(matrix: torch.Tensor) -> bool:
    """Are all rows of a matrix equal, and not zero?"""
    return bool(_are_alike(matrix)) and bool(matrix.any())


def _are_alike(matrix: torch.Tensor) -> torch.Tensor:
    """Whether all rows are equal, and there are enough of them to tell."""
    rows = matrix.detach().flatten(1) if matrix.dim() > 1 else matrix.detach()[None]
    enough = rows.shape[0] >= 4 and rows.shape[1] >= 2
    return (rows.amin(0) == rows.amax(0)).all() if enough else rows.new_zeros(())
