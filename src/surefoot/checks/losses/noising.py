"""Recognises samples that are mixed with noise for a diffusion model, and tests how much of each there is."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, own, readable
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.losses.known_terms import KnownTerms
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_NORMAL = {"randn", "randn_like", "normal", "normal_"}
_PRODUCTS = {"mul", "__mul__", "__rmul__", "multiply"}
_SUMS = {"add", "__add__", "__radd__"}
_ERRORS = {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss}
_KEEPS = {"__getitem__", "gather", "index_select", "take", "view", "reshape", "unsqueeze", "to", "float", "clone"}
_EXACT = 1e-3
_FEWEST, _MANY = 8, 64
_FAINT = 0.3
"""If noise never has a larger factor than this, samples are still recognisable at the last step."""


class Noising(Observer):
    """Follows noise through the product with its factor and the sum with a sample, to the target of the loss."""

    def __init__(self, scene: Scene, known: KnownTerms) -> None:
        super().__init__(scene)
        self._known = known
        self._noise: WeakNotes[None] = WeakNotes()
        self._scaled: WeakNotes[tuple[bool, torch.Tensor, str]] = WeakNotes()
        """Products of one number for each sample: with noise or not, the numbers, and where these come from."""
        self._mixed: list[tuple[str, torch.Tensor, torch.Tensor, str]] = []
        """The factors of sample and noise since the last update, with the line and where the factors come from."""
        self._made: WeakNotes[str] = WeakNotes()
        """Tables of remaining signal: "bar" (a running product), "rest" (1 minus it), and the roots of both."""
        self._largest: dict[str, tuple[int, float]] = {}

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Follows tables, noise, products and sums."""
        if not self.scene.close or not args or not isinstance(out, torch.Tensor):
            return
        if function in _ERRORS:
            if any(each in self._noise for each in (*args[:2], *kwargs.values())):
                self._aimed_at()
            return
        name = getattr(function, "__name__", "")
        if name in _NORMAL:
            self._noise[out] = None
        elif out.requires_grad:
            if "sub" in name and any(each in self._noise for each in args[:2]):
                self._aimed_at()
        else:
            self._follow(name, args, out)

    def _follow(self, name: str, args: Args, out: torch.Tensor) -> None:
        if name == "cumprod":
            self._made[out] = "bar"
        elif (made := self._made.get(args[0])) is not None and (name in _KEEPS or name in ("sqrt", "rsub", "__rsub__")):
            self._made[out] = _followed(made, name)
        elif name in _PRODUCTS and len(args) >= 2:
            self._product(args[0], args[1], out)
        elif name in _SUMS and len(args) >= 2:
            one, other = self._scaled.get(args[0]), self._scaled.get(args[1])
            if one is not None and other is not None and one[0] != other[0]:
                noise, signal = (one, other) if one[0] else (other, one)
                self._mixed.append((caller(), signal[1], noise[1], f"{signal[2]} {noise[2]}"))

    def _product(self, one: Any, other: Any, out: torch.Tensor) -> None:
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or not len(self._noise):
            return
        values, factor = (one, other) if one.numel() >= other.numel() else (other, one)
        if out.dim() >= 2 and factor.numel() == len(out) >= 2 and values.shape == out.shape and readable(factor):
            self._scaled[out] = values in self._noise, own(factor).flatten(), self._made.get(factor) or ""

    def _aimed_at(self) -> None:
        """The noise is the target of the loss: this is a diffusion model."""
        mixed, self._mixed = self._mixed, []
        for where, signal, noise, made in mixed:
            if len(signal) == len(noise) >= _FEWEST:
                with aside():
                    fault = self._fault(where, wide(signal), wide(noise), made)
                if fault is not None:
                    self._known.saw("noise", where, fault)

    def _fault(self, where: str, signal: torch.Tensor, noise: torch.Tensor, made: str) -> str | None:
        if len(signal.unique()) < 4:
            return None
        if _are(signal**2 + noise**2):
            count, most = self._largest.get(where, (0, 0.0))
            self._largest[where] = count, most = count + len(noise), max(most, float(noise.max()))
            if made == "root of rest root of bar":
                return "the sample has the factor of the noise and the noise that of the sample"
            if most >= _FAINT:
                return ""
            return f"the factor of the noise is never above {most:.2g}" if count >= _MANY else None
        if _are(signal**2 + noise):
            return "the factor of the noise is the square of what it should be: its root is missing"
        if _are(signal + noise**2):
            return "the factor of the sample is the square of what it should be: its root is missing"
        if _are(signal + noise) and "bar" in made:
            return "both factors are the squares of what they should be: their roots are missing"
        return "" if _are(signal) else None

    def update_ends(self, optimizer: Optimizer) -> None:
        self._noise, self._scaled, self._mixed = WeakNotes(), WeakNotes(), []


def _followed(made: str, name: str) -> str:
    if name == "sqrt":
        return f"root of {made}"
    if "rsub" in name:
        return {"bar": "rest", "rest": "bar"}.get(made, "")
    return made


def _are(values: torch.Tensor) -> bool:
    """Are all of these 1?"""
    return bool(((values - 1).abs() < _EXACT).all())
