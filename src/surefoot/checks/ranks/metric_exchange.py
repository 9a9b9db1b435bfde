"""Watches whether ranks combine the metrics they evaluate."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.samples.loaders import Loaders

_TELLING = (
    *("all_reduce", "reduce", "gather", "all_gather", "all_gather_into_tensor", "all_gather_object"),
    *("gather_object", "send", "isend", "all_to_all_single"),
)
_MOST_ROWS = 2048


class MetricExchange(Observer):
    """Follows an evaluation of a trained model until the next training batch or forward."""

    after = (Gradients,)

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self.rows: set[int] = set()
        """Hashes of the evaluated samples."""
        self.told = False
        self._batches: int | None = None
        """While an evaluation runs: the number of training batches read at its start."""

    def __enter__(self) -> MetricExchange:
        if dist.is_available():
            for name in _TELLING:
                self.follow(dist, name, before=self._tells)
        return self

    def _tells(self, *_: object, **__: object) -> None:
        self.told |= self._batches is not None and self._batches == self._loaders.trained_batches()

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if torch.is_grad_enabled() or model.training:
            self._batches = None
        elif len(self.rows) < _MOST_ROWS and any(p in self.scene.reached for p in model.parameters()):
            self._batches = self._loaders.trained_batches()
            first = next((each for each in tensors((args, kwargs)) if readable(each) and each.dim() >= 1), None)
            self.rows |= set() if first is None else {digest(row) for row in HOST.of(first)}
