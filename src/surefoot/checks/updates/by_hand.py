"""Watches what a loop does to gradients by hand: limits, copies, updates."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.functions import DATA
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digests_now, readable, sampled, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.updates import UpdateFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.events.callers import asked_by_user, caller
from surefoot.torch_inside.autograd import writes
from surefoot.torch_inside.modes import aside

_TENSOR: Any = torch.Tensor
_GRADIENT = _TENSOR.grad.__get__
"""The function that runs when `.grad` is read."""
_SHARES = {"detach", "view", "reshape", "flatten", "contiguous", "view_as"}
_COPIES = {"clone", "copy", "to", "float", "cpu"}
_LIMITS = {
    "clamp",
    "clip",
    "mul",
    "__mul__",
    "__rmul__",
    "div",
    "__truediv__",
    "true_divide",
    "multiply",
    "_foreach_mul",
}
_LIMITS_IN_PLACE = {"clamp_", "clip_", "mul_", "div_", "__imul__", "__itruediv__", "_foreach_mul_", "_foreach_div_"}
_COMPARED = 4
"""The number of parameters that are followed from backward to backward."""
_COMPARED_VALUES = 64
"""The number of their values that are compared."""
_SUMS = {"add", "__add__", "__radd__"}
_TAKEN = {
    *_COPIES,
    *_SUMS,
    "div",
    "__truediv__",
    "cat",
    "concat",
    "add_",
    "__iadd__",
    "sub_",
    "__isub__",
    "copy_",
    "lerp_",
}
"""Functions that keep more of a gradient than its size."""


class UpdatesByHand(Observer):
    """Follows gradients that the loop handles itself, from backward to update."""

    after = (Gradients,)
    reads = True
    waits = True

    def __init__(self, scene: Scene, gradients: Gradients) -> None:
        super().__init__(scene)
        self._gradients = gradients
        self._known: WeakNotes[None] = WeakNotes()
        self._copies: WeakNotes[None] = WeakNotes()
        self._limited: dict[int, weakref.ref[torch.Tensor]] = {}
        """Clipped gradients that nothing has used so far."""
        self._left: dict[str, set[int]] = {}
        """Lines whose clipped gradients were deleted unused, and in which updates."""
        self._rescaled = False
        """Gradients were multiplied or divided since the last update."""
        self._after: list[tuple[torch.Tensor, weakref.ref[torch.Tensor], int, torch.Tensor]] = []
        """Some parameters after a backward: the gradient, its version counter, and a hash of the parameter."""
        self.carried = 0
        """How often weights were changed by hand while their gradients kept accumulating."""

    def __enter__(self) -> UpdatesByHand:
        self.follow(torch.autograd, "grad", after=lambda out, *_, **__: self._note(out))
        return self

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Follows what the loop does with gradients."""
        if self.scene.updating is not None or not self.scene.close or self.scene.phases.in_model():
            return
        if function == _GRADIENT or (function == DATA and args[0] in self._known):
            self._note(out)
            if out is not None and not isinstance(args[0], nn.Parameter):
                self._take()  # the gradient of an input, as in an attack
        elif self._known:
            self._use(getattr(function, "__name__", ""), args, kwargs, out)

    def _note(self, found: object) -> None:
        self._known.put(tensors(found), None)

    def _use(self, name: str, args: Args, kwargs: Kwargs, out: object) -> None:
        first = list(tensors(args[:1]))
        if name in _TAKEN and any(each in self._known for each in tensors(args)):
            self._take()
        if name in _LIMITS_IN_PLACE:
            self._read((args[1:], kwargs))
            self._rescaled |= any(each in self._known for each in first) and asked_by_user()
            self._limit(each for each in first if each in self._copies)
            return
        self._rescaled |= name == "__set__" and any(map(self._is_limited, tensors(args[1:])))
        self._read((args, kwargs))
        if self._is_carried(name, args):
            self._gradients.carried.put(tensors(out), None)
        known = [each for each in first if each in self._known]
        if name in _LIMITS and (known or any(each in self._copies for each in first)):
            self._limit(tensors(out))
        elif known and name in _SHARES:
            self._note(out)
        elif known and name in _COPIES and out is not args[0]:
            self._copies.put(tensors(out), None)

    def _take(self) -> None:
        """The pending gradients were used by hand: clearing them does not lose them."""
        self._gradients.taken.update(self._gradients.pending)

    def _is_carried(self, name: str, args: Args) -> bool:
        """Does the result contain gradients that an earlier update already used?"""
        carried = self._gradients.carried
        if carried and any(each in carried for each in tensors(args)):
            return True
        return name in _SUMS and any(self._gradients.is_used_gradient(each) for each in tensors(args))

    def _read(self, given: object) -> None:
        for each in tensors(given) if self._limited else ():
            if self._is_limited(each):
                del self._limited[id(each)]

    def _is_limited(self, tensor: torch.Tensor) -> bool:
        ref = self._limited.get(id(tensor))
        return ref is not None and ref() is tensor

    def _limit(self, limited: Any) -> None:
        for each in limited:
            gone = functools.partial(self._gone, id(each), caller(), self.scene.updates)
            self._limited[id(each)] = weakref.ref(each, gone)

    def _gone(self, key: int, line: str, update: int, ref: weakref.ref[torch.Tensor]) -> None:
        if self._limited.get(key) is ref:
            del self._limited[key]
            self._left.setdefault(line, set()).add(update)

    def backward_ends(self) -> None:
        """Records some weights. Skips those that FSDP has freed again."""
        if self.scene.updates or not self.scene.close:
            return
        graded: list[tuple[torch.Tensor, Any]] = [(p, p.grad) for p in self.scene.reached if p.grad is not None]
        some = [each for each in graded if readable(each[0]) and each[0].untyped_storage().size()][:_COMPARED]
        with aside():
            self._after = [(p, weakref.ref(g), writes(g), sampled(p, _COMPARED_VALUES).clone()) for p, g in some]

    def backward_begins(self, losses: object) -> None:
        if not self.scene.updates and self._after:
            self.carried += self._have_moved()
        self._after = []

    def _have_moved(self) -> bool:
        """Did all weights change although their gradients stand as they were?"""
        if not all(p.grad is not None and p.grad is ref() and writes(p.grad) == at for p, ref, at, _ in self._after):
            return False
        with aside():
            now = [sampled(p, _COMPARED_VALUES) for p, *_ in self._after]
            prints = digests_now([*now, *(before for *_, before in self._after)])
        return all(one != other for one, other in zip(prints, prints[len(now) :], strict=False))

    def update_begins(self, optimizer: Optimizer) -> None:
        self._gradients.updates[-1].rescaled = self._rescaled

    def update_left_out(self, optimizer: Optimizer) -> None:
        self.update_ends(optimizer)

    def update_ends(self, optimizer: Optimizer) -> None:
        self._known, self._copies, self._rescaled = WeakNotes(), WeakNotes(), False

    def facts(self) -> Iterator[UpdateFacts]:
        unused = (line for line, updates in self._left.items() if len(updates) >= 2)
        yield UpdateFacts(unused_limits=tuple(unused), carried_by_hand=self.carried)
