"""Masked: scores that are multiplied by a mask before a softmax, where a score of zero still has its share."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.callers import caller
from surefoot.phases import aside
from surefoot.witness.emptied import PRODUCTS
from surefoot.witness.faults import argument
from surefoot.witness.marks import Marks
from surefoot.witness.scene import Part, Scene, readable

_SOFTMAXES = {"softmax", "log_softmax"}
_AFTERWARDS = PRODUCTS | {"masked_fill", "masked_fill_", "where"}
_FEWEST = 2


class Masked(Part):
    """From a product with a mask into a softmax. What is masked again behind the softmax is right."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._products: Marks[tuple[str, torch.Tensor]] = Marks()
        """By product: its line, and the mask."""
        self._shares: Marks[str] = Marks()
        """By what a softmax made of one: the line of the product."""
        self._lines: dict[str, int] = {}
        self._right: set[str] = set()

    def called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A function of torch's has returned."""
        name = getattr(function, "__name__", "")
        if not self.scene.close or not isinstance(out, torch.Tensor):
            return
        if name in _AFTERWARDS:
            self._right.update(line for each in args[:3] if (line := self._shares.get(each)) is not None)
        if name in PRODUCTS and len(args) > 1 and out.requires_grad and out.dim() >= 2:
            self._multiplied(args[:2], out)
        elif name in _SOFTMAXES and args:
            self._shared(args[0], argument(args, kwargs, 1, "dim"), out)

    def _multiplied(self, factors: tuple[Any, ...], out: torch.Tensor) -> None:
        for mask in factors:
            if readable(mask) and not mask.requires_grad and mask.dim() and out.dim() >= mask.dim() and _is_mask(mask):
                self._products[out] = caller(), mask

    def _shared(self, given: Any, dim: Any, out: torch.Tensor) -> None:
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

    def lines(self) -> tuple[str, ...]:
        """Lines that multiply scores by a mask of padding, and whose softmax is taken as it is."""
        return tuple(line for line, count in self._lines.items() if count >= _FEWEST and line not in self._right)


def _is_mask(tensor: torch.Tensor) -> bool:
    with aside():
        return tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())
