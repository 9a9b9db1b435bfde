"""Finds whether a backward pushes predictions towards the targets or away from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.autograd_graph import SHARES, made_of, operation, ranks, undropped
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, own, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.losses import Aim, LossFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.losses.gradient_signature import Signature, is_cut, overlap_of, signature_of
from surefoot.torch_inside.autograd import number
from surefoot.torch_inside.modes import aside

_UPDATES = 8
"""The number of updates in which predictions are watched."""
_MOST = 12
"""The most tensors of one step, and the most targets, that are watched."""
_NORMALIZERS = {"softmax", "log_softmax", "logsumexp", "sigmoid", "logsigmoid", "softplus"}
"""Their inputs outside a model are logits, whether or not a model returned them."""
_SHARES = {"sigmoid", "softmax"}
_KEEPS_VALUES = {
    "float", "double", "long", "int", "to", "type", "half", "bfloat16", "__getitem__", "index_select", "gather", "take",
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "expand", "expand_as", "view_as", "contiguous", "clone",
    "detach", "transpose", "permute", "t", "cat", "stack", "one_hot", "scatter", "scatter_", "chunk", "split", "narrow",
    "requires_grad_", "unbind", "type_as", "__get__", "softmax", "sigmoid",
}  # fmt: skip
"""A target keeps its meaning through these functions; `1 - y` changes it."""
_UNREAD = torch.empty(0)
"""Stands for a tensor that is too large to read."""
_SCALES = {"mul", "__mul__", "__rmul__", "div", "__truediv__"}


@dataclass
class _Step:
    """What was seen since the last backward."""

    hooked: set[int] = field(default_factory=set)
    targets: WeakNotes[torch.Tensor] = field(default_factory=WeakNotes)
    """Possible targets, with a copy of their values."""
    changed: WeakNotes[None] = field(default_factory=WeakNotes)
    """Tensors without a gradient that were computed since a model returned."""


class PushDirections(Observer):
    """Judges losses, also handwritten ones, by how they move predictions."""

    after = (Gradients,)
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.aims: list[Aim] = []
        self._step = _Step()

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if self._looks():
            self._step.changed = WeakNotes()
            for each in tensors(output):
                self._hook(each, self.scene.name(model))

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Collects possible targets and logits."""
        if not self._step.hooked or self.scene.phases.in_model() or not torch.is_grad_enabled():
            return
        step, name = self._step, getattr(function, "__name__", "")
        given = [each for each in tensors((args, kwargs)) if not each.requires_grad]
        if not _keeps_values(name, args) or any(each in step.changed for each in given):
            made = [each for each in tensors(out) if not each.requires_grad]
            step.changed.put((each for each in made if all(each is not other for other in given)), None)
        for each in given:
            if each.dim() and each not in step.changed and each not in step.targets and len(step.targets) < _MOST:
                step.targets[each] = HOST.kept(each) if readable(each) else _UNREAD
        if name in _NORMALIZERS and self._looks():
            for each in tensors(args):
                self._hook(each, self.scene.phases.module() or "the loss")
            if name in _SHARES and isinstance(out, torch.Tensor) and out.requires_grad and readable(out):
                self._hook_shares(out)

    def _hook_shares(self, shares: torch.Tensor) -> None:
        """Shares that the loss computes itself belong to one of its terms, whatever the others are."""
        step, given, seen = self._step, own(shares), self.scene.failsafe.callback(self._overlaps)
        shares.register_hook(lambda gradient: seen(step, given, gradient))

    def _overlaps(self, step: _Step, given: torch.Tensor, gradient: torch.Tensor) -> None:
        with aside(), torch.no_grad():
            gradient, *targets = HOST.all_of([gradient, *step.targets.notes()])
            for target in targets:
                seen = overlap_of(given.float(), gradient.float(), target) if readable(target) else None
                if seen is not None:
                    self.aims.append(self._aim(seen, "the loss", "", given))
                    return

    def backward_ends(self) -> None:
        self._step = _Step()

    def _looks(self) -> bool:
        return self.scene.close and self.scene.updates < _UPDATES and torch.is_grad_enabled()

    def _hook(self, tensor: torch.Tensor, model: str) -> None:
        node, above_it = undropped(tensor.grad_fn), tensor.grad_fn
        if (
            node is None
            or above_it is None
            or not tensor.dim()
            or not tensor.is_floating_point()
            or not readable(tensor)
        ):
            return
        made = number(above_it)
        if made in self._step.hooked or len(self._step.hooked) >= _MOST:
            return
        self._step.hooked.add(made)
        step, given, above = self._step, own(tensor), operation(made_of(node))
        ranked = ranks(tensor, classes=tensor.shape[-1] if tensor.dim() > 1 and tensor.shape[-1] > 1 else 0)
        pushed = self.scene.failsafe.callback(self._pushed)
        tensor.register_hook(lambda gradient: pushed(step, given, gradient, model, above, ranked))

    def _pushed(self, step: _Step, given: Any, gradient: torch.Tensor, model: str, above: str, ranked: bool) -> None:
        with aside(), torch.no_grad():
            gradient, *targets = HOST.all_of([gradient, *step.targets.notes()])
            least, most = map(float, gradient.aminmax()) if gradient.numel() else (0.0, 0.0)
            if not math.isfinite(least) or not math.isfinite(most) or least == most == 0:
                return
            for target in targets:
                seen = signature_of(given.float(), gradient.float(), target) if readable(target) else None
                if seen is not None:
                    self.aims.append(replace(self._aim(seen, model, above, given), ranks=ranked))

    def _aim(self, seen: Signature, model: str, above: str, given: torch.Tensor) -> Aim:
        return Aim(
            model, self.scene.updates, self.scene.backwards - 1, seen.kind, seen.sign, seen.values, above,
            is_cut(given), seen.targets, seen.constant, seen.class_numbers, seen.even, seen.excess,
            apart=above not in SHARES and bool((given >= 0).all()),
        )  # fmt: skip

    def facts(self) -> Iterator[LossFacts]:
        yield LossFacts(aims=tuple(self.aims))


def _keeps_values(name: str, args: Args) -> bool:
    scaled = name in _SCALES and len(args) > 1 and isinstance(args[1], int | float) and args[1] > 0
    return scaled or name in _KEEPS_VALUES
