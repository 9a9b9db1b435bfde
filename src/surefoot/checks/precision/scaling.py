"""Watches gradient scalers and autocast regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held
from surefoot.checks.facts.precision import PrecisionFacts, Scaling
from surefoot.checks.loop.backwards import Backwards
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients


class GradientScaling(Observer):
    """Watches loss scaling against underflow, and autocast regions."""

    after = (Gradients,)

    def __init__(self, scene: Scene, gradients: Gradients, backwards: Backwards, calls: Forwards) -> None:
        super().__init__(scene)
        self._gradients, self._backwards, self._calls = gradients, backwards, calls
        self._attempts = self._exits = self._skipped = self._skipped_late = 0
        self._updates_before = 0
        self._skipped_first: dict[Optimizer, int] = {}
        """For each optimizer: the updates that were skipped before its first successful update."""
        self._exits_at: dict[int, int] = {}
        self._depth = 0
        self._chosen: set[bool] = set()
        """Whether autocast regions got an explicit dtype. The default needs a scaler, except on a CPU."""
        self.used = False

    def __enter__(self) -> GradientScaling:
        scaler = torch.amp.GradScaler
        self.follow(scaler, "scale", before=self._scales)
        self.follow(scaler, "unscale_", after=self._unscaled)
        self.follow(scaler, "step", before=self._steps, after=self._stepped)
        self.follow(scaler, "update", after=self._ends)
        self._depth = int(torch.is_autocast_enabled("cpu"))
        self.follow(torch.autocast, "__init__", before=self._makes_region)
        self.follow(torch.autocast, "__enter__", before=self._enters_autocast)
        self.follow(torch.autocast, "__exit__", before=self._leaves_autocast)
        return self

    def _scales(self, scaler: Any, *_: object, **__: object) -> None:
        if not scaler.is_enabled():
            return
        self.used = True
        if self.scene.close:
            self._backwards.scale = float(scaler.get_scale())
        if self._gradients.unscaled is None:
            self._gradients.unscaled = set()

    def _unscaled(self, _: object, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        if scaler.is_enabled() and self._gradients.unscaled is not None:
            self._gradients.unscaled |= set(held(optimizer))

    def _steps(self, scaler: Any, *_: object, **__: object) -> None:
        if scaler.is_enabled():
            self._attempts += 1
        self._updates_before = self.scene.updates

    def _stepped(self, _: object, scaler: Any, optimizer: Optimizer, *__: object, **___: object) -> None:
        if scaler.is_enabled() and self.scene.updates == self._updates_before:
            self._skipped += 1
            self._skipped_late += self._skipped < self._attempts
            if not self.scene.updates_of(optimizer):
                self._skipped_first[optimizer] = self._skipped_first.get(optimizer, 0) + 1
            self.scene.bus.update_left_out(optimizer)

    def _ends(self, *_: object, **__: object) -> None:
        self._gradients.unscaled = None

    def _makes_region(self, _: object, *args: object, **kwargs: object) -> None:
        self._chosen.add((args[1] if len(args) > 1 else kwargs.get("dtype")) is not None)

    def _enters_autocast(self, region: Any) -> None:
        self._depth += 1

    def _leaves_autocast(self, *_: object, **__: object) -> None:
        """Casts are cached until the outermost region ends."""
        self._depth -= 1
        self._exits += self._depth <= 0

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        device = next((each.device.type for each in held(optimizer)), "cpu")
        since = self._exits_at.get(id(optimizer))
        inside = torch.is_autocast_enabled(device) and torch.is_autocast_cache_enabled()
        self._gradients.updates[-1].in_autocast = inside and since == self._exits
        self._exits_at[id(optimizer)] = self._exits

    def facts(self) -> Iterator[PrecisionFacts]:
        if self.used:
            meant = any(each.trained for each in self._calls.in_bfloat16) and self._chosen != {False}
            first = max(self._skipped_first.values(), default=0)
            yield PrecisionFacts(scaling=Scaling(self._attempts, self._skipped, meant, self._skipped_late, first))
