"""Thresholds: evaluated numbers that are compared with one half, and whether they are logits."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from surefoot.callers import caller
from surefoot.checks.evidence import Threshold
from surefoot.phases import aside, number
from surefoot.witness.graph import through_views
from surefoot.witness.scene import Part, Scene, readable, tensors

_COMPARISONS = {"gt", "__gt__", "ge", "__ge__", "lt", "__lt__", "le", "__le__", "greater", "less"}


class Thresholds(Part):
    """One half is a threshold of probabilities."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.thresholds: dict[str, Threshold] = {}
        self._places: dict[int, int] = {}
        """The place among a model's outputs, by the number of the node that made each."""
        self._logits: set[int] = set()
        """Places of outputs that a binary cross-entropy took for logits."""
        self._evaluated: list[tuple[int, weakref.ref[torch.Tensor]]] = []

    def model_returned(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        floating = [each for each in tensors(output) if each.is_floating_point()]
        if torch.is_grad_enabled():
            made = [(n, through_views(each.grad_fn)) for n, each in enumerate(floating)]
            self._places = {number(node): n for n, node in made if node is not None}
        else:
            self._evaluated = [(n, weakref.ref(each)) for n, each in enumerate(floating)]

    def called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A function of torch's has returned."""
        if function is F.binary_cross_entropy_with_logits and self.scene.close and torch.is_grad_enabled() and args:
            node = through_views(args[0].grad_fn)
            if node is not None and number(node) in self._places:
                self._logits.add(self._places[number(node)])
        elif not torch.is_grad_enabled() and not self.scene.phases.in_model() and len(self.thresholds) < 8:
            self._compared(getattr(function, "__name__", ""), args)

    def _compared(self, name: str, args: tuple[Any, ...]) -> None:
        halves = [each for each in args if name in _COMPARISONS and isinstance(each, float) and each == 0.5]
        compared = [each for each in args if readable(each) and each.is_floating_point() and each.numel()]
        if not halves or not compared:
            return
        with aside():
            lowest, highest = float(compared[0].min()), float(compared[0].max())
        if lowest < 0 or highest > 1 or self._is_logits(compared[0]):
            self.thresholds.setdefault(caller(), Threshold(caller(), lowest, highest))

    def _is_logits(self, compared: torch.Tensor) -> bool:
        """Is this an output, or a view of one, that training takes for logits?"""
        outputs = [each for n, ref in self._evaluated if n in self._logits and (each := ref()) is not None]
        return any(each.data_ptr() == compared.data_ptr() for each in outputs if readable(each))
