"""Runs a recorded training forward again on a copy of its model, with some inputs replaced."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from surefoot.checks.engine.attempts import NoRoom
from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.randomness import seed_all

CHANGED = 1e-3
"""Outputs count as changed if they differ by more than this share of their standard deviation."""
MOST_BYTES = 1 << 31
_NOTHING = 1e8
"""Outputs below minus this value are masked: they are set to zero."""


class Again:
    """A copy of a model, and a recorded call to repeat on it."""

    def __init__(self, scene: Scene, call: Captured) -> None:
        self.scene, self.call = scene, call
        self._look = f"probes on a copy of {scene.name(call.model)}"
        own = inner(call.model)
        if not scene.has_room(self._look, (*own.parameters(), *own.buffers())):
            raise NoRoom("too little free memory on the device")
        self.model = copied(call.model)
        self.inputs = list(tensors((call.args, call.kwargs)))

    def __call__(self, changed: dict[int, torch.Tensor] | None = None, *, training: bool = False) -> list[torch.Tensor]:
        """Runs the call and returns its floating-point outputs, on the host.

        `changed` replaces inputs by their index. The random seed is the same in every run.
        """
        if len(self.inputs) != len(self.call.devices):
            raise ValueError("inputs inside of objects that are not copied")
        args, kwargs = self.call.given(changed or {})
        kept = [each.clone() for each in self.model.buffers()] if training else []
        with self._as_called(), self._in_memory():
            self.model.train(training)
            seed_all(0)
            output = self.model(*args, **kwargs)
            for buffer, before in zip(self.model.buffers(), kept, strict=False):  # restores running statistics
                buffer.copy_(before)
        numbers = [each.detach().float() for each in tensors(output) if each.is_floating_point()]
        return [each.masked_fill(each < -_NOTHING, 0.0) for each in HOST.fresh(numbers)]

    def course(self, path: str, value: torch.Tensor) -> list[torch.Tensor]:
        """The outputs of two training forwards and one evaluation, on a copy with one attribute replaced."""
        model = copy.deepcopy(self.model)
        holder, _, attribute = path.rpartition(".")
        setattr(model.get_submodule(holder), attribute, value.clone())
        outputs: list[torch.Tensor] = []
        with self._as_called(), self._in_memory():
            for training in (True, True, False):
                args, kwargs = self.call.given({})
                seed_all(0)
                outputs += tensors(model.train(training)(*args, **kwargs))
        return HOST.fresh([each.detach().float() for each in outputs if each.is_floating_point()])

    @contextmanager
    def _in_memory(self) -> Iterator[None]:
        """If the memory does not suffice, the look is left out."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            self.scene.left_out[self._look] = None
            raise NoRoom("too little free memory on the device") from error

    @contextmanager
    def _as_called(self) -> Iterator[None]:
        device, dtype = self.call.autocast or ("cpu", torch.bfloat16)
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # training never uses it, and it turns masked rows into NaN
        try:
            with torch.no_grad(), torch.autocast(device, dtype, enabled=self.call.autocast is not None):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def copied(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with the model. Raises ValueError if the model cannot be copied."""
    model = inner(model)
    for module in model.modules():
        if not isinstance(vars(module).get("forward", None), types.MethodType | None):
            raise ValueError("a forward that a copy would not have")
    if sum(each.numel() * each.element_size() for each in model.parameters()) > MOST_BYTES:
        raise ValueError("too large to copy")
    return copy.deepcopy(model)


def inner(model: nn.Module) -> nn.Module:
    """The model inside a DDP wrapper, or the model itself."""
    return getattr(model, "module", model) if type(model).__name__ == "DistributedDataParallel" else model


def change(before: torch.Tensor, after: torch.Tensor) -> float:
    if before.shape != after.shape or not before.numel():
        return 0.0
    scale = before.std(correction=0) if before.numel() > 1 else before.abs().squeeze()
    return float((before - after).abs().max() / (scale + 1e-9))


def moved(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """How much each number changed, in standard deviations of all numbers. Rounding counts as no change."""
    difference = (before - after).abs()
    return difference.masked_fill(difference < 1e-6 * before.abs(), 0.0) / (before.std(correction=0) + 1e-9)


def other(values: torch.Tensor, seed: int) -> torch.Tensor:
    """Different values of the same kind: tokens drawn from those present, floats shifted and scaled."""
    if values.is_floating_point():
        return values.flip(0) * 1.7 + 0.9 if values.dim() else values * 1.7 + 0.9
    drawn = torch.Generator().manual_seed(seed)
    pool = values.flatten()
    return pool[torch.randint(0, pool.numel(), values.shape, generator=drawn, device="cpu")]


def redrawn(values: torch.Tensor, pool: torch.Tensor, seed: int) -> torch.Tensor:
    """Tokens drawn from a pool, each different from the token it replaces."""
    pool = pool.unique()
    drawn = torch.Generator().manual_seed(seed)
    new = pool[torch.randint(0, pool.numel(), values.shape, generator=drawn, device="cpu")]
    following = pool[(torch.searchsorted(pool, new) + 1) % pool.numel()]
    return torch.where(new == values, following, new)
