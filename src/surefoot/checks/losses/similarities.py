"""Recognises matrices of similarities in contrastive losses, and tests what a cross-entropy needs of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.optim import Optimizer

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, own, readable
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.losses.known_terms import KnownTerms
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_PRODUCTS = {"matmul", "mm", "__matmul__", "__rmatmul__"}
_FEWEST, _MOST = 6, 2048
_EVEN = 1e-2
_WEAK = 0.5
"""Cosines that are scaled by less than this cannot tell one candidate from another."""
_STRONG = 3.0
"""Numbers that are scaled by more than this are meant to be cosines."""
_ALIKE = 0.8
Sides = tuple[torch.Tensor, torch.Tensor]


class Similarities(Observer):
    """Follows square products of two batches of vectors into the cross-entropy."""

    waits = True

    def __init__(self, scene: Scene, known: KnownTerms) -> None:
        super().__init__(scene)
        self._known = known
        self._sides: list[Sides] = []
        """The two sides of the square products since the last update."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Collects products, and looks at logits that were made of one."""
        if not self.scene.close or not isinstance(out, torch.Tensor) or not out.requires_grad:
            return
        if function is F.cross_entropy:
            target: Any = args[1] if len(args) > 1 else kwargs.get("target")
            if self._sides and readable(args[0]) and readable(target):
                self._look(args[0], target)
        elif out.dim() == 2 and out.shape[0] == out.shape[1] and getattr(function, "__name__", "") in _PRODUCTS:
            one, other = args[:2]
            fits = _FEWEST <= len(out) <= _MOST and one.dim() == other.dim() == 2
            if fits and readable(one) and readable(other) and len(self._sides) < 8:
                self._sides.append((own(one), own(other).t()))

    def _look(self, logits: torch.Tensor, target: torch.Tensor) -> None:
        if logits.dim() != 2 or logits.shape[0] != logits.shape[1] or target.dim() != 1 or target.is_floating_point():
            return
        with aside():
            logits, target = HOST.all_of((logits, target))
            if len(target.unique()) != len(logits) or int(target.min()) != 0 or int(target.max()) != len(logits) - 1:
                return
            values = logits.double()
            for one, other in reversed(self._sides):
                if len(one) == len(values) and (scale := _scale(values, one, other)) is not None:
                    self._known.saw("similarity", caller(), _fault(values, target, one, other, scale))
                    return

    def update_ends(self, optimizer: Optimizer) -> None:
        self._sides = []


def _scale(logits: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> float | None:
    """The number by which logits are larger than the products of both sides; None if they are not made of them."""
    plain = wide(one) @ wide(other).t()
    for products in (plain, plain.t()):
        off = ~torch.eye(len(products), dtype=torch.bool, device=products.device) & (products.abs() > 1e-4)
        ratios = (logits / products)[off]
        if ratios.numel() < len(products):
            continue
        middle = float(ratios.median())
        if middle and float(wide((ratios - middle).abs() < 1e-2 * abs(middle)).mean()) > _ALIKE:
            return middle
    return None


def _fault(logits: torch.Tensor, target: torch.Tensor, one: torch.Tensor, other: torch.Tensor, scale: float) -> str:
    lengths = [_length(each, 1) for each in (one, other)]
    places = torch.arange(len(target), device=target.device)
    itself = torch.equal(one, other) and not bool((target == places).any())
    if scale < 0:
        return "the similarities enter with a negative factor"
    if itself and bool((logits.diagonal() >= logits.max(1).values).all()):
        return "each sample is among its own candidates, and the most alike of them, but never the target"
    if all(lengths):
        factor = scale * lengths[0] * lengths[1]
        if factor <= _WEAK:
            return f"cosines are multiplied by {factor:.2g}, so no candidate can stand out: divide by the temperature"
        return _other_partner(logits, target) if itself else ""
    if any(lengths):
        return "only one side of the similarities has vectors of equal length"
    if any(_length(each, 0) for each in (one, other)):
        return "vectors are normalised over the batch, not each over its own numbers"
    return f"products of vectors that are not normalised are multiplied by {scale:.3g}" if scale >= _STRONG else ""


def _length(vectors: torch.Tensor, dim: int) -> float:
    """The length that all vectors have, or 0 if they differ. One side may have been multiplied by the scale."""
    lengths = wide(vectors).norm(dim=dim)
    middle = float(lengths.mean())
    return middle if len(lengths) > 1 and bool(((lengths - middle).abs() < _EVEN * middle).all()) else 0.0


def _other_partner(logits: torch.Tensor, target: torch.Tensor) -> str:
    """Is the most alike candidate of nearly every sample the other view of it, but another one the target?"""
    count = len(target)
    places = torch.arange(count, device=target.device)
    nearest = logits.masked_fill(torch.eye(count, dtype=torch.bool, device=logits.device), -torch.inf).argmax(1)
    orders = {"next to it": places ^ 1, "half a batch away": (places + count // 2) % count}
    if count % 2 == 0 and float(wide(nearest == target).mean()) < 1 - _ALIKE:
        for words, order in orders.items():
            if float(wide(nearest == order).mean()) > _ALIKE:
                return f"the most alike candidate of each sample is the one {words}, but the target is another one"
    return ""
