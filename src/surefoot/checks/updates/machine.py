"""Tells what of this machine a training asks for: its accelerator, and kernels that are the same in every run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.facts.updates import UpdateFacts
from surefoot.world.device import accelerator


class Machine(Observer):
    """Compares torch's settings, and the devices of parameters, with what this machine has."""

    def facts(self) -> Iterator[UpdateFacts]:
        same_bits = torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
        yield UpdateFacts(
            benchmarks_kernels=torch.backends.cudnn.benchmark and same_bits,
            idle_accelerator=self._idle_accelerator(),
        )

    def _idle_accelerator(self) -> str:
        devices = {each.device.type for each in self.scene.names()}
        return str(accelerator() or "") if devices == {"cpu"} else ""
