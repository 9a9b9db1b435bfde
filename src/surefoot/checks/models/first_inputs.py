"""Records the numbers and tokens that reach the first layer of a model."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args, Kwargs
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.checks.facts.samples import Inputs, SampleFacts
from surefoot.checks.loop.forwards import Forwards
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FIRST_LAYERS = (nn.Linear, *_CONVOLUTIONS, nn.RNNBase, nn.Embedding)


_EVALUATIONS = 8
"""The number of forwards without gradients that are read, whenever they come."""
_ROWS = 64
"""The number of rows that are searched for zeros between tokens."""


class FirstInputs(Observer):
    """Records the inputs of first layers."""

    after = (Forwards,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.inputs: list[Inputs] = []
        self._seen: set[bool] = set()
        """Whether tokens, and whether numbers, have entered a first layer in this forward."""
        self._trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """First layers that got numbers with gradients on."""
        self._evaluations = 0
        self._given = WeakTensorSet()
        """The columns of numbers that the running model was given."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._given = WeakTensorSet(each for each in tensors(args) if self.scene.close and _are_columns(each))

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        of_tokens = isinstance(module, nn.Embedding)
        if not isinstance(module, _FIRST_LAYERS) or of_tokens in self._seen or not args:
            return
        evaluated = not torch.is_grad_enabled() and module in self._trained
        read = self.scene.close or (evaluated and self._evaluations < _EVALUATIONS)
        if not read or self.scene.phases.recomputing():
            return
        given = readable(args[0]) and not isinstance(args[0], nn.Parameter)
        if given and args[0].grad_fn is None:  # else a layer, such as an embedding, made it
            self._seen.add(of_tokens)
            self._note(module, args[0], evaluated=evaluated)
            self._evaluations += evaluated
            if torch.is_grad_enabled() and not of_tokens:
                self._trained.add(module)
        elif given and isinstance(module, nn.Linear) and args[0].dim() == 2:
            self._look_beside(module, args[0], evaluated=evaluated)

    def _look_beside(self, layer: nn.Module, entered: torch.Tensor, *, evaluated: bool) -> None:
        """Notes the model's own columns where they enter a layer beside what other layers made, as embeddings."""
        with aside():
            inside = [each for each in HOST.all_of(list(self._given)) if _is_among(each, HOST.of(entered))]
        if inside:
            self._seen.add(False)
            self._note(layer, torch.cat([each.view(len(each), -1) for each in inside], 1), evaluated=evaluated)

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        self._seen.clear()

    def _note(self, layer: nn.Module, entered: torch.Tensor, *, evaluated: bool) -> None:
        model = self.scene.name(next(iter(self.scene.phases.models)))
        name = self.scene.phases.names.get(layer, type(layer).__name__)
        with aside():
            values = HOST.of(entered)
            image = isinstance(layer, nn.Conv2d) and values.dim() == 4 and values.shape[1] in (1, 3, 4)
            image |= isinstance(layer, nn.Conv1d) and values.dim() == 3 and values.shape[1] == 1
            image |= isinstance(layer, nn.Linear) and values.is_floating_point() and values.shape[-1] >= 64
            if isinstance(layer, nn.Embedding):
                self.inputs.append(
                    Inputs(model, name, tuple(values.shape), 0, 0, True, False, zero_interleaved=_interleaved(values))
                )
            elif values.numel():
                whole = bool((values == values.round()).all())
                lowest, highest = float(values.min()), float(values.max())
                dim = 1 if isinstance(layer, _CONVOLUTIONS) else -1
                seen = Inputs(model, name, tuple(values.shape), lowest, highest, whole, image)
                seen.size, seen.mean = _largest_size(values, dim), float(wide(values).mean())
                seen.evaluated = evaluated
                seen.deviation = _largest_size(values - values.mean(_others(values, dim), keepdim=True), dim)
                self.inputs.append(seen)

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(inputs=tuple(self.inputs))


def _are_columns(each: torch.Tensor) -> bool:
    return (
        readable(each)
        and each.is_floating_point()
        and each.dim() in (1, 2)
        and len(each) > 1
        and not each.requires_grad
    )


def _is_among(columns: torch.Tensor, entered: torch.Tensor) -> bool:
    """Are these columns next to each other among the columns that entered a layer?"""
    wanted = columns.view(len(columns), -1)
    if len(wanted) != len(entered) or wanted.shape[1] > entered.shape[1] or wanted.dtype != entered.dtype:
        return False
    starts = (entered[0] == wanted[0, 0]).nonzero().flatten().tolist()
    return any(torch.equal(entered[:, start : start + wanted.shape[1]], wanted) for start in starts[:_ROWS])


def _largest_size(values: torch.Tensor, dim: int) -> float:
    """The largest root mean square of any feature."""
    return float(wide(values).square().mean(_others(values, dim)).max().sqrt())


def _others(values: torch.Tensor, dim: int) -> tuple[int, ...]:
    return tuple(each for each in range(values.dim()) if each != dim % values.dim())


def _interleaved(tokens: torch.Tensor) -> bool:
    """Is only every second, fourth or eighth token of each row nonzero?"""
    if tokens.dim() != 2:
        return False
    return any(_one_in(each, rows) for rows in (tokens[:_ROWS], tokens.t()[:_ROWS]) for each in (2, 4, 8))


def _one_in(period: int, rows: torch.Tensor) -> bool:
    found = [_is_one_in(period, _without_padding(row)) for row in rows] if rows.shape[1] >= max(8, 3 * period) else []
    told = [each for each in found if each is not None]
    return 2 * len(told) >= max(1, len(found)) and sum(told) > 0.9 * len(told)


def _is_one_in(period: int, row: torch.Tensor) -> bool | None:
    """None if the row is too short to tell."""
    length = len(row) // period * period
    if length < max(8, 3 * period):
        return None
    filled = (row[:length] != 0).view(-1, period).float().mean(0).sort().values
    return bool(filled[-1] > 0.7) and bool(filled[-2] < 0.05)


def _without_padding(row: torch.Tensor) -> torch.Tensor:
    """A row without the long run of one token at its end, if it has one."""
    others = (row != row[-1]).nonzero().flatten()
    end = int(others[-1]) + 1 if others.numel() else 0
    return row[:end] if len(row) - end > 8 else row
