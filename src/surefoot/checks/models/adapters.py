"""Finds adapters beside layers, as LoRA has them, by peft or written by hand: whether they move, and with what factor
they enter the forward.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, held, own, readable
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import Adapter, ModelFacts
from surefoot.randomness import kept
from surefoot.torch_inside.modes import aside

_MOST_MATRICES = 8
"""A module with more matrices than this is no layer with an adapter."""
_MEASURED = 3
"""How many adapters of a model are run on a copy, to see their factor."""
_ROWS = 32
"""How many rows of a weight are kept."""
_EXACT = 1e-3


@dataclass(eq=False)
class Pair:
    """The two matrices of an adapter, and the weight beside which they stand."""

    name: str
    model: str
    layer: weakref.ref[nn.Module]
    first: nn.Parameter
    second: nn.Parameter
    base: nn.Parameter | None
    prints: tuple[int, int, int]
    since: int
    """The number of updates before it was found."""
    owner: weakref.ref[nn.Module]
    fresh: bool
    """One of the matrices was zero when it was found: it has learned nothing yet."""
    kept: torch.Tensor | None = None
    """The first rows of the weight before training, for adapters whose factor is measured."""
    factor: float | None = None
    base_trained: bool = False
    """An update moved the weight while the adapter beside it was trained, too."""

    def products(self) -> list[torch.Tensor]:
        """The product of both in the shape of the weight; for a square weight, also the other way round."""
        wanted = self.base.shape if self.base is not None else None
        first, second = (each.detach() for each in (self.first, self.second))
        first = first if first.shape[0] > first.shape[1] else first.t()
        second = second.t() if second.shape[0] > second.shape[1] else second
        made = first @ second
        return [each for each in (made, made.t()) if each.shape == wanted]


class Adapters(Observer):
    """Looks for adapters in each model that is trained, and again when a new optimizer is made."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._seen: dict[nn.Module, int] = {}
        self.pairs: dict[nn.Parameter, Pair] = {}
        """Each adapter by its first matrix."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        if not torch.is_grad_enabled() or self._seen.get(model) == self.scene.training:
            return
        self._seen[model] = self.scene.training
        for pair in _pairs_in(model, self.scene.name(model), self.scene.updates):
            self.pairs.setdefault(pair.first, pair)
        self._keep_rows()

    def _keep_rows(self) -> None:
        """Keeps rows of the smallest weights beside which adapters stand."""
        known = [(pair.base, pair) for pair in self.pairs.values() if pair.base is not None]
        for base, pair in sorted(known, key=lambda each: each[0].numel())[:_MEASURED]:
            if pair.kept is None and readable(base):
                pair.kept = own(rows_of(base))

    def update_ends(self, optimizer: Optimizer) -> None:
        """Notes which weights move with their adapters, and measures factors, once both matrices have values."""
        self._note_bases(optimizer)
        if not self.scene.close:
            return
        for pair in self.pairs.values():
            if pair.kept is None or pair.factor is not None or _is_zero(pair.first) or _is_zero(pair.second):
                continue
            layer = pair.layer()
            if layer is not None and not self.scene.has_room("the factors of adapters", layer.parameters()):
                continue
            with attempt(f"running a copy of {pair.name}"), self.scene.phases.deaf(), kept():
                pair.factor = _factor(pair)

    def _note_bases(self, optimizer: Optimizer) -> None:
        """A weight that was trained before its adapter was there, or into which the adapter was merged, is fine."""
        waiting = [pair for pair in self.pairs.values() if pair.base is not None and not pair.base_trained]
        own = set(held(optimizer)) if waiting else set()
        for pair in waiting:
            adapts = pair.first.requires_grad or pair.second.requires_grad
            if adapts and pair.base in own and pair.base.requires_grad and pair.base.grad is not None:
                pair.base_trained = _prints(pair.first, pair.second, pair.base)[2] != pair.prints[2]

    def trained(self) -> set[torch.Tensor]:
        """All matrices of adapters."""
        return {each for pair in self.pairs.values() for each in (pair.first, pair.second)}

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(adapters=tuple(self._adapters()))

    def _adapters(self) -> Iterator[Adapter]:
        for pair in self.pairs.values():
            now = _prints(pair.first, pair.second, None)
            seen = readable(pair.first) and readable(pair.second)
            moved = not seen or not pair.fresh or now[:2] != pair.prints[:2]
            if self._is_trained(pair):
                yield Adapter(pair.name, pair.model, pair.base_trained, moved, self.scene.updates - pair.since)

    def _is_trained(self, pair: Pair) -> bool:
        """Is anything of its model trained? A teacher may have adapters, too."""
        owner = pair.owner()
        others = owner.parameters() if owner is not None else ()
        return any(each in self.scene.trained for each in (pair.first, pair.second, *others))


def _pairs_in(model: nn.Module, name: str, updates: int) -> Iterator[Pair]:
    """The adapters of a model. The smallest module that holds both matrices and the weight is the layer."""
    claimed = set[nn.Parameter]()
    for path, module in reversed(list(model.named_modules())):  # inner modules come first
        matrices = [(at, each) for at, each in module.named_parameters() if each.dim() == 2]
        if not 2 <= len(matrices) <= _MOST_MATRICES:
            continue
        for first, second, base in _matching(matrices):
            if first not in claimed and second not in claimed:
                claimed |= {first, second}
                prints, refs = _prints(first, second, base), (weakref.ref(module), weakref.ref(model))
                fresh = _is_zero(first) or _is_zero(second)
                yield Pair(path or name, name, refs[0], first, second, base, prints, updates, refs[1], fresh)


def _matching(
    matrices: list[tuple[str, nn.Parameter]],
) -> Iterator[tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]]:
    """Two thin matrices, one of them zero or called `lora`, and the weight whose shape their product has."""
    for place, (at, first) in enumerate(matrices):
        for other, second in matrices[place + 1 :]:
            by_name = "lora" in at.lower() and "lora" in other.lower()
            shapes = _shapes_of_product(first, second)
            base = next((each for _, each in matrices if tuple(each.shape) in shapes), None)
            if not shapes or (base is None and not by_name):
                continue
            if by_name or _is_zero(first) or _is_zero(second):
                yield first, second, base


def _is_zero(matrix: torch.Tensor) -> bool:
    with aside():
        return readable(matrix) and not bool(matrix.any())


def _shapes_of_product(first: torch.Tensor, second: torch.Tensor) -> set[tuple[int, int]]:
    """The shapes that a product through the smallest dimension of both may have."""
    (a, b), (c, d) = first.shape, second.shape
    rank = min(a, b)
    if rank != min(c, d) or rank == max(a, b) or rank == max(c, d):
        return set()
    return {(max(a, b), max(c, d)), (max(c, d), max(a, b))}


def _prints(first: torch.Tensor, second: torch.Tensor, base: torch.Tensor | None) -> tuple[int, int, int]:
    one, other, beside = (
        fingerprint(rows_of(each), 256) if each is not None and readable(each) else 0 for each in (first, second, base)
    )
    return one, other, beside


def rows_of(weight: torch.Tensor) -> torch.Tensor:
    """The first rows of a weight: they are compared in place of all."""
    return weight.detach()[:_ROWS]


def _factor(pair: Pair) -> float | None:
    """By how much the product is multiplied in the forward: a copy of the layer runs with and without it."""
    layer = pair.layer()
    if layer is None:
        return None
    names = {id(each): name for name, each in layer.named_parameters()}
    twin = copy.deepcopy(layer).eval().float()
    zeroed = twin.get_parameter(names[id(pair.second)])
    drawn = torch.Generator().manual_seed(0)
    products = [each.float() for each in pair.products()]
    for turned in [*products, *(each.t() for each in products)]:
        given = torch.randn(8, turned.shape[1], generator=drawn, device="cpu").to(turned.device)
        with torch.no_grad(), aside():
            before = zeroed.clone()
            try:
                out = twin(given)
                zeroed.zero_()
                change = out - twin(given)
            except RuntimeError:
                continue  # the weight stands the other way round
            finally:
                zeroed.copy_(before)
            expected = given @ turned.t()
            if change.shape == expected.shape and (factor := fitted(change, expected)) is not None:
                return factor
    return None


def fitted(seen: torch.Tensor, product: torch.Tensor, exact: float = _EXACT) -> float | None:
    """The factor by which one tensor is a multiple of another; None if it is none."""
    size = float((product * product).sum())
    if not size or not bool(seen.any()):
        return None
    factor = float((seen * product).sum()) / size
    return factor if float((seen - factor * product).norm()) <= exact * float(seen.norm()) else None
