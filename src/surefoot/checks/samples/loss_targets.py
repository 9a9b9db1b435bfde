"""Passes on the targets that losses of torch get, with and without gradients, to whoever asked for them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args, Function, Kwargs


class LossTargets(Observer):
    """Does nothing until `tell` is set."""

    functions = frozenset(
        {
            "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "gaussian_nll_loss",
            "huber_loss", "l1_loss", "mse_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
        }
    )  # fmt: skip

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.tell: Callable[[torch.Tensor], None] | None = None

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        target = args[1] if len(args) > 1 else kwargs.get("target")
        if self.tell is not None and isinstance(target, torch.Tensor):
            self.tell(target)
