"""Recognises the terms of a policy gradient: advantages, returns, ratios of probabilities, and bootstrapped values."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
import torch.nn.functional as F
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import VIEWS, operation
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, own, readable
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.loop.modes import active
from surefoot.checks.losses.known_terms import KnownTerms
from surefoot.checks.losses.return_recursions import SHORTEST, fault_of_returns
from surefoot.checks.samples.arrays_in_sight import arrays_in_sight
from surefoot.events.callers import caller, is_user, near_frames
from surefoot.source.frames import variables
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_SUMS = {"add", "__add__", "__radd__"}
_CLAMPS = {"clamp", "clip", "clamp_"}
_LARGER = {"max", "maximum"}
_SMALLER = {"min", "minimum"}
_ERRORS = {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss}
_KEEPS = {"detach", "view", "reshape", "squeeze", "unsqueeze", "flatten", "float", "to", "clone"}
_FAR = 0.05
"""The log of a ratio that should be 0 may differ by dropout and rounding, but not by this much."""
_DONE = re.compile(r"^(dones?|d|terminals?|terminated|b_dones?|done_batch|dones?_b)$")
_FEWEST_ROWS, _MOST_ROWS = 8, 4096


class PolicyTerms(Observer):
    """Follows what log-probabilities are multiplied with, and the targets of values."""

    def __init__(self, scene: Scene, known: KnownTerms) -> None:
        super().__init__(scene)
        self._known = known
        self.acts = False
        """Actions were drawn, and their log-probabilities computed."""
        self._weights: dict[str, list[float]] = {}
        """By line, what log-probabilities were multiplied with since the last backward, in order."""
        self._ratios: WeakNotes[float] = WeakNotes()
        """Ratios of probabilities, with the median of the absolute value of their logarithm."""
        self._sums: WeakNotes[tuple[torch.Tensor, torch.Tensor]] = WeakNotes()
        """Sums of two tensors without gradients, with copies of both."""
        self._rows: dict[str, tuple[int, int, int]] = {}
        """By line: final states, those of them whose future counts nothing, and others whose future counts nothing."""

    def _looks(self) -> bool:
        return self.scene.close and not self.scene.phases.in_model()

    def weighed(self, weight: Any, out: torch.Tensor) -> None:
        """Hears that a log-probability was multiplied."""
        if isinstance(weight, torch.Tensor):
            if weight.requires_grad:
                if _is_difference(weight.grad_fn):
                    self._known.saw("advantage", caller(), "it carries a gradient into what it was computed from")
                return
            if not weight.is_floating_point() or weight.numel() != out.numel() or not readable(weight):
                return
            with aside():
                values = wide(weight.detach()).flatten().tolist()
            if len(values) > 1 and self.acts:
                self._known.saw("advantage", caller())
        else:
            values = [float(weight)] if isinstance(weight, int | float) and out.numel() == 1 else []
        if values and out.grad_fn is not None and not self._judge(caller(), values):
            self._weights.setdefault(caller(), []).extend(values)

    def backward_begins(self, losses: object) -> None:
        weights, self._weights = self._weights, {}
        for where, values in weights.items():
            self._judge(where, values)

    def _judge(self, where: str, weights: list[float]) -> bool:
        """Compares weights with the rewards in sight. Returns whether they are returns."""
        if len(weights) < SHORTEST or not self.scene.close:
            return False
        fault = fault_of_returns(weights, arrays_in_sight(lists=True))
        if fault is not None:
            self._known.saw("returns", where, fault)
        return fault is not None

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Recognises ratios of probabilities, their clipping, and targets of values."""
        if not args or not self._looks():
            return
        if function in _ERRORS:
            target = args[1] if len(args) > 1 else kwargs.get("target")
            if torch.is_grad_enabled() and getattr(out, "requires_grad", False):
                self._value_error(target)
            return
        if not isinstance(out, torch.Tensor):
            return
        name = getattr(function, "__name__", "")
        if not out.requires_grad:
            self._sum(name, args, out)
        elif name == "exp" and _is_ratio(out):
            with aside():
                self._ratios[out] = float(out.detach().float().log().abs().median()) if readable(out) else 0.0
        elif name in _CLAMPS and args[0] in self._ratios and _holds_one(args, kwargs):
            self._clipped(args[0])
        elif name in _LARGER | _SMALLER and len(args) == 2 and self._ratios:
            self._clipped_side(name in _LARGER, args, out)

    def _clipped(self, ratio: torch.Tensor) -> None:
        off = self._ratios.get(ratio) or 0.0
        if self.scene.updates:
            return
        models = [each for each in self.scene.phases.models if each.training]
        if off > _FAR and not any(active(each) for each in models):
            self._known.saw("ratio", caller(), f"before any update the logarithm of the ratio is {off:.2g}, not 0")
        else:
            self._known.saw("ratio", caller())

    def _clipped_side(self, larger: bool, args: Args, out: torch.Tensor) -> None:
        """Both sides of a clipped objective: it must keep the one that promises less."""
        tops: list[Any] = [getattr(each, "grad_fn", None) for each in args]
        below = [
            {operation(node) for node, _ in top.next_functions} if operation(top) == "Mul" else set() for top in tops
        ]
        if not (any("Clamp" in each for each in below) and any("Exp" in each for each in below)):
            return
        out.register_hook(functools.partial(self.scene.failsafe.callback(self._kept), caller(), larger))

    def _kept(self, where: str, larger: bool, gradient: torch.Tensor) -> None:
        with aside():
            raised = bool((gradient <= 0).all()) and bool((gradient < 0).any())
        fault = "of the clipped and the plain objective it keeps the larger one" if larger and raised else ""
        self._known.saw("clipping", where, fault)

    def _sum(self, name: str, args: Args, out: torch.Tensor) -> None:
        if not out.is_floating_point() or not out.dim() or len(out) != out.numel():
            return
        one, other = args[0], args[1] if len(args) > 1 else None
        if name in _SUMS and isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if one.shape == other.shape and _FEWEST_ROWS <= one.numel() <= _MOST_ROWS and readable(out):
                self._sums[out] = own(one), own(other)
        elif name in _KEEPS and (parts := self._sums.get(one)) is not None:
            self._sums[out] = parts

    def _value_error(self, target: Any) -> None:
        """A value is compared with a reward plus what follows: after the last state nothing may follow."""
        parts = self._sums.get(target)
        if parts is None or not (done := _final_states(len(parts[0]))).any():
            return
        with aside():
            following = [each.flatten().cpu() for each in parts]
            ends = max(following, key=lambda each: int((each == 0).sum()))
            final, masked = int(done.sum()), int((ends[done] == 0).sum())
            others = int((ends[~done] == 0).sum())
        where = caller()
        before = self._rows.get(where, (0, 0, 0))
        total = before[0] + final, before[1] + masked, before[2] + others
        self._rows[where] = total
        if masked:
            self._known.saw("final states", where)
        elif total[0] >= _FEWEST_ROWS:
            how = "the value of others counts nothing instead" if others else "what follows them still counts"
            self._known.saw("final states", where, f"of {total[0]} final states none ends its episode: {how}")

    def update_ends(self, optimizer: Optimizer) -> None:
        self._ratios, self._sums, self._weights = WeakNotes(), WeakNotes(), {}


def _is_ratio(out: torch.Tensor) -> bool:
    """Is this the exponential of a difference of which only the first part has a gradient?"""
    node: Any = out.grad_fn
    if operation(node) != "Exp" or out.numel() < _FEWEST_ROWS // 2:
        return False
    above = node.next_functions[0][0]
    while operation(above) in VIEWS:
        above = above.next_functions[0][0]
    return operation(above) == "Sub" and [each is None for each, _ in above.next_functions] == [False, True]


def _is_difference(node: Any) -> bool:
    """Is this a difference, perhaps normalised?"""
    while operation(node) in ("Div", "Mul", *VIEWS) and node.next_functions:
        node = next((each for each, _ in node.next_functions if each is not None), None)
    return operation(node) in ("Sub", "Rsub")


def _holds_one(args: Args, kwargs: Kwargs) -> bool:
    """Does a clamp keep values around 1?"""
    low = kwargs.get("min", args[1] if len(args) > 1 else None)
    high = kwargs.get("max", args[2] if len(args) > 2 else None)
    return isinstance(low, int | float) and isinstance(high, int | float) and 0 < low < 1 < high


def _final_states(count: int) -> torch.Tensor:
    """Which states of the batch were the last of their episodes, by a variable that says so; none if there is none."""
    with aside():
        for frame in near_frames():
            if not is_user(frame):
                continue
            for name, value in variables(frame).items():
                if _DONE.match(name) and isinstance(value, torch.Tensor) and value.numel() == count and readable(value):
                    flags = value.detach().flatten().cpu()
                    if bool(((flags == 0) | (flags == 1)).all()) and 0 < int((flags != 0).sum()) < count:
                        return flags != 0
    return torch.zeros(1, dtype=torch.bool)
