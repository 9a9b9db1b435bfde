"""Finds attention masks that set scores to zero instead of minus infinity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.text import TextFacts
from surefoot.checks.losses.argument_faults import argument
from surefoot.checks.losses.empty_masks import PRODUCTS
from surefoot.checks.losses.loss_calls import SOFTMAXES
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

_FILLS = {"masked_fill", "masked_fill_"}
_AFTERWARDS = PRODUCTS | _FILLS | {"where"}
_FEWEST = 2
_LOW = -10.0
"""A score this low gets almost no attention next to ordinary ones."""


class LenientMasks(Observer):
    """Follows scores from a product with a mask, or a fill, into a softmax. A second mask after it makes them right."""

    functions = _AFTERWARDS | SOFTMAXES
    reads = True
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._products: WeakNotes[tuple[str, torch.Tensor]] = WeakNotes()
        """By the masked tensor: the line, and what the mask keeps."""
        self._shares: WeakNotes[str] = WeakNotes()
        """By the softmax of a masked tensor: the line of the mask."""
        self._lines: dict[str, int] = {}
        self._right: set[str] = set()

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Hears that a torch function has returned."""
        name = getattr(function, "__name__", "")
        if not self.scene.close or not isinstance(out, torch.Tensor):
            return
        if name in _AFTERWARDS:
            self._right.update(line for each in args[:3] if (line := self._shares.get(each)) is not None)
        if name in PRODUCTS and len(args) > 1 and out.requires_grad and out.dim() >= 2:
            self._multiplied(args[:2], out)
        elif name in _FILLS and len(args) > 2 and out.requires_grad and out.dim() >= 2:
            self._filled(args[1], args[2], out)
        elif name in SOFTMAXES and args:
            self._shared(args[0], argument(args, kwargs, 1, "dim"), out)

    def _multiplied(self, factors: Args, out: torch.Tensor) -> None:
        for mask in factors:
            if readable(mask) and not mask.requires_grad and mask.dim() and out.dim() >= mask.dim() and _is_mask(mask):
                self._products[out] = caller(), mask

    def _filled(self, mask: Any, value: object, out: torch.Tensor) -> None:
        if (
            readable(mask)
            and mask.dtype == torch.bool
            and mask.dim()
            and isinstance(value, int | float)
            and value > _LOW
        ):
            with aside():
                self._products[out] = caller(), ~mask

    def _shared(self, given: object, dim: Any, out: torch.Tensor) -> None:
        product = self._products.get(given)
        if product is None or not isinstance(dim, int):
            return
        line, mask = product
        with aside():
            dim %= out.dim()
            kept = mask.bool().expand(out.shape).movedim(dim, -1)
            ends = [kept[..., :-1] >= kept[..., 1:], kept[..., :-1] <= kept[..., 1:]]
            counts = kept.sum(-1)
            padding = any(bool(each.all()) for each in ends) and counts.unique().numel() > 1
            causal = kept.dim() >= 2 and kept.shape[-1] == kept.shape[-2] and bool(kept.tril().equal(kept))
        if padding and not causal:
            self._lines[line] = self._lines.get(line, 0) + 1
            self._shares[out] = line

    def backward_begins(self, losses: object) -> None:
        self._products = WeakNotes()  # until here the graph keeps the masks alive as well

    def facts(self) -> Iterator[TextFacts]:
        lines = (line for line, count in self._lines.items() if count >= _FEWEST and line not in self._right)
        yield TextFacts(lenient_masks=tuple(lines))


def _is_mask(tensor: torch.Tensor) -> bool:
    with aside():
        return tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())
