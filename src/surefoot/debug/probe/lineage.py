"""Lineage: which leaves of a batch reach the loss, and whether through an operation with a parameter.

A leaf that meets no parameter on its way to the loss is a target, one that meets parameters on every way an input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from surefoot.debug.probe.leaves import leaves
from surefoot.trees import map_tensors, tensors_in

_SILENT = {"__set__", "backward", "size", "dim"}
_SHAPES_ONLY = {"__getitem__", "__get__", "dropout", "to", "detach", "clone"}
Tags = dict[str, frozenset[bool]]
Swap = Callable[[torch.Tensor, int], torch.Tensor]


class Lineage(TorchFunctionMode):
    """Follows leaves while `on`. `swap`, if given, changes constants where they meet outputs outside of a model."""

    def __init__(self, *, on: bool = False) -> None:
        super().__init__()
        self.on, self.swap, self.inside = on, None, False
        self.reached: dict[str, set[bool]] = defaultdict(set)

    swap: Swap | None
    inside: bool
    """Is the forward of a model running?"""

    def enters(self, entry: str, batch: Any) -> None:
        """Tags the leaves of a batch, or of a call's arguments, by where they enter."""
        if not self.on:
            return
        for path, leaf in leaves(batch).items():
            for each in tensors_in(leaf):
                if not is_live(each):
                    each.probe_tags = {**tags_of(each), f"{entry}:{path}": frozenset([False])}  # type: ignore[attr-defined]

    def losses(self, losses: Any) -> None:
        """Notes the leaves that a backward's losses were made of."""
        for each in tensors_in(losses):
            for leaf, ways in tags_of(each).items():
                self.reached[leaf] |= ways

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not (self.on or self.swap) or name in _SILENT:
            return func(*args, **kwargs)
        given = list(tensors_in((args, kwargs)))
        if self.swap is not None and not self.inside and name not in _SHAPES_ONLY:
            args, kwargs = self._swapped(self.swap, given, args, kwargs)
        out = func(*args, **kwargs)
        self._tag(given, out)
        return out

    def _tag(self, given: list[torch.Tensor], out: Any) -> None:
        met = any(isinstance(each, nn.Parameter) for each in given)
        live = met or any(map(is_live, given))
        made: Tags = {}
        for each in given:
            for leaf, ways in tags_of(each).items():
                made[leaf] = made.get(leaf, frozenset()) | (frozenset([True]) if met else ways)
        if not (made or live):
            return
        for each in tensors_in(out):
            if not isinstance(each, nn.Parameter):
                each.probe_tags = {**tags_of(each), **made}  # type: ignore[attr-defined]
                each.probe_live = live or is_live(each)  # type: ignore[attr-defined]

    @staticmethod
    def _swapped(swap: Swap, given: list[torch.Tensor], args: Any, kwargs: Any) -> tuple[Any, Any]:
        sizes = {each.shape[0] for each in given if is_live(each) and each.dim()}
        if not sizes:
            return args, kwargs

        def changed(tensor: torch.Tensor) -> torch.Tensor:
            constant = not (is_live(tensor) or tensor.requires_grad) and tensor.dim() > 0
            return swap(tensor, tensor.shape[0]) if constant and tensor.shape[0] in sizes else tensor

        return map_tensors(changed, args), map_tensors(changed, kwargs)


def tags_of(tensor: torch.Tensor) -> Tags:
    """The leaves that a tensor was made of, each with the ways it came."""
    return getattr(tensor, "probe_tags", {})


def is_live(tensor: torch.Tensor) -> bool:
    """Was a tensor made with a parameter?"""
    return getattr(tensor, "probe_live", False)


def role(ways: set[bool]) -> str:
    """What a leaf is to the loss, by the ways in which it reached it."""
    if not ways:
        return "none"
    return "both" if len(ways) > 1 else "input" if True in ways else "target"
