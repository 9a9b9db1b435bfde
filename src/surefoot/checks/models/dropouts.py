"""Notices dropout that is on: torch's own, or a random mask multiplied by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.scene import tensors
from surefoot.checks.engine.types import Function

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_DRAWS = ("rand", "rand_like", "uniform_")
_COMPARES = ("gt", "ge", "lt", "le", "__gt__", "__ge__", "__lt__", "__le__")
_MASKS = ("mul", "__mul__", "__rmul__", "mul_", "__imul__", "where", "masked_fill", "masked_fill_")
_PASSES_ON = ("float", "to", "type_as", "type", "div", "__truediv__", "__invert__", "bitwise_not", "logical_not")


class Dropouts(TorchFunctionMode):
    """`on` names the active dropout. Noise on the inputs themselves is not a dropout."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.on = ""
        self._inputs = {tuple(each.shape) for each in inputs}
        self._drawn: list[torch.Tensor] = []
        self._masks: list[torch.Tensor] = []

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        out = func(*args, **kwargs)
        if name in _DROPOUTS:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
            self.on = name if training and p > 0 else self.on
        elif name == "scaled_dot_product_attention":
            p = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            self.on = name if p > 0 else self.on
        else:
            self._by_hand(name, args, out)
        return out

    def _by_hand(self, name: str, args: Any, out: Any) -> None:
        given = list(tensors(args))
        if name in _DRAWS:
            self._drawn.append(out)
        elif self._is_mask(name, args, given):
            self._masks.append(out)
        elif name in _MASKS and _among(self._masks, given):
            dropped = [each for each in given if each.is_floating_point() and not _among(self._masks, [each])]
            if any(each.dim() and tuple(each.shape) not in self._inputs for each in dropped):
                self.on = self.on or "a mask that is drawn at random"

    def _is_mask(self, name: str, args: Any, given: list[torch.Tensor]) -> bool:
        """Is this a mask of zeros and ones, drawn with one rate?"""
        if name == "bernoulli":
            return bool(given) and given[0].unique().numel() == 1
        if name in _COMPARES:
            return _among(self._drawn, given) and any(isinstance(each, float) for each in args)
        return name in _PASSES_ON and _among(self._masks, given)


def _among(known: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    return any(each is other for each in given for other in known)
