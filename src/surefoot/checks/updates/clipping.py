"""Watches gradient clipping, and how much of each update was clipped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held
from surefoot.checks.facts.updates import Clip, UpdateFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.events.callers import caller
from surefoot.torch_inside.patches import patch

_LIMITS = {"clip_grad_norm_": "max_norm", "clip_grads_with_norm_": "max_norm", "clip_grad_value_": "clip_value"}


class Clipping(Observer):
    """Records calls of torch's clipping functions, and how much of each update they clipped."""

    after = (Gradients,)

    def __init__(self, scene: Scene, gradients: Gradients) -> None:
        super().__init__(scene)
        self._gradients = gradients
        self.clips: list[Clip] = []
        self._limited: set[torch.Tensor] = set()
        """Parameters whose gradients were clipped since the last backward."""

    def __enter__(self) -> Clipping:
        for name in _LIMITS:
            if hasattr(nn.utils, name):
                self._follow_clipping(name)
        return self

    def _follow_clipping(self, name: str) -> None:
        """Wraps a clipping function. A generator of parameters can be read only once, so it is passed on as a list."""
        clipped, limit_name = self.scene.failsafe.callback(self._clipped), _LIMITS[name]

        def make(plain: Any) -> Any:
            def followed(parameters: Any, *args: object, **kwargs: object) -> Any:
                listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
                clipped(listed, args[0] if args else kwargs.get(limit_name, math.inf))
                return plain(listed, *args, **kwargs)

            return followed

        for owner in (nn.utils, nn.utils.clip_grad):
            if hasattr(owner, name):
                self._entered.callback(patch(owner, name, make))

    def _clipped(self, parameters: list[torch.Tensor], limit: float) -> None:
        graded = [p for p in parameters if p.grad is not None]
        unscaled = self._gradients.unscaled
        clip = Clip(
            where=caller(),
            parameters=len(parameters),
            with_gradient=len(graded),
            used_already=bool(graded) and all(map(self._gradients.is_used, graded)),
            scaled=unscaled is not None and bool(graded) and not unscaled.intersection(graded),
            optimized=not self.scene.optimized().isdisjoint(parameters),
            unlimited=math.isinf(float(limit)),
            trainable=any(p.requires_grad for p in parameters),
        )
        self.clips.append(clip)
        if not clip.unlimited:
            self._limited.update(graded)

    def backward_ends(self) -> None:
        self._limited = set()

    def update_ends(self, optimizer: Optimizer) -> None:
        sizes = {p: p.grad.numel() for p in held(optimizer) if p.grad is not None}
        limited = sum(size for p, size in sizes.items() if p in self._limited)
        self._gradients.updates[-1].clipped_share = limited / max(1, sum(sizes.values()))
        self._limited -= set(sizes)

    def facts(self) -> Iterator[UpdateFacts]:
        yield UpdateFacts(clips=tuple(self.clips))
