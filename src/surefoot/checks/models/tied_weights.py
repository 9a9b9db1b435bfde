"""Finds embedding and output weights that were meant to be shared and are not."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.torch_inside.modules import parameters_of

_FEW_VALUES = 2
"""Matrices with so few distinct values, such as ones and zeros, are equal without being copies."""

_MOST_ROWS = 0.7
"""If more than this share of the rows is equal, it is a copy."""
Place = tuple[weakref.ref[nn.Module], str]


class TiedWeights(Observer):
    """Finds parameters that two modules shared and that one of them has since replaced."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._holders: WeakNotes[Place] = WeakNotes()
        self._tied: list[tuple[Place, Place]] = []

    def __enter__(self) -> TiedWeights:
        self.follow(nn.Module, "register_parameter", after=self._registered)
        return self

    def _registered(self, _: None, module: nn.Module, name: str, parameter: Any, **__: object) -> None:
        if not isinstance(parameter, nn.Parameter):
            return
        place = weakref.ref(module), name
        first = self._holders.get(parameter)
        if first is None:
            self._holders[parameter] = place
        elif first != place and parameter.dim() == 2:
            self._tied.append((first, place))

    def undone(self, model: nn.Module) -> Iterator[str]:
        """Places of a model that shared one matrix and now hold two."""
        names = {module: name for name, module in model.named_modules()}
        for pair in self._tied:
            held = [(owner(), name) for owner, name in pair]
            if all(owner in names for owner, _ in held):
                weights = [parameters_of(owner).get(name) for owner, name in held if owner is not None]
                one, other = weights
                if one is not None and other is not None and one is not other and one.shape == other.shape:
                    yield " and ".join(
                        f"{names[owner]}.{name}".lstrip(".") for owner, name in held if owner is not None
                    )


def undone_ties(model: nn.Module) -> Iterator[str]:
    """Input and output embeddings that the model's configuration ties, but that are two tensors."""
    for name, module in model.named_modules():
        asked = getattr(getattr(module, "config", None), "tie_word_embeddings", False)
        if asked is True and hasattr(module, "get_output_embeddings") and hasattr(module, "get_input_embeddings"):
            first, last = module.get_input_embeddings(), module.get_output_embeddings()
            weights = getattr(first, "weight", None), getattr(last, "weight", None)
            if None not in weights and weights[0] is not weights[1]:
                yield f"{name}.input and output embeddings".lstrip(".")


def copied_ties(model: nn.Module) -> Iterator[str]:
    """Output weights that begin as a copy of an embedding, in all or most rows, without sharing it."""
    embeddings = {m.weight: n for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
    own = {p: n for m_name, m in model.named_modules() for n, p in _raw(m_name, m) if n not in embeddings.values()}
    linear = {m.weight: n for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    found: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    for looked_up, name in (embeddings | own).items():
        for weight, other in (linear | own).items():
            both = readable(weight) and readable(looked_up) and weight.requires_grad and looked_up.requires_grad
            twins = _leaf(name) == _leaf(other) and weight in own and looked_up in own  # the same part of two layers
            if weight is not looked_up and both and not twins:
                found += ((f"{other} and {name}", looked_up, share) for share in _shares(weight, looked_up))
    alike = zip(found, HOST.fresh([share for *_, share in found]), strict=True)
    varied = {words: looked_up for (words, looked_up, _), share in alike if bool(share > _MOST_ROWS)}
    yield from (words for words, looked_up in varied.items() if looked_up.unique().numel() > _FEW_VALUES)


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _raw(owner: str, module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Matrices that a user's module holds directly."""
    if not type(module).__module__.startswith("torch."):
        yield from ((f"{owner}.{n}".lstrip("."), p) for n, p in module.named_parameters(recurse=False) if p.dim() == 2)


def _shares(weight: torch.Tensor, looked_up: torch.Tensor) -> Iterator[torch.Tensor]:
    """The share of a matrix's rows, and of its columns, that are copies of another's rows, in its own memory."""
    for each in (weight, weight.t()):
        rows = min(len(each), len(looked_up))
        if each.shape[1] != looked_up.shape[1] or rows < 4 or each.data_ptr() == looked_up.data_ptr():
            continue
        yield (each[:rows] == looked_up[:rows]).all(1).float().mean()
