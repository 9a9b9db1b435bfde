"""LrRange: the loss at learning rates from far too small to far too large."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LrPoint:
    """One step: its learning rate, the loss that the steps before it led to, and that loss without its noise."""

    lr: float
    loss: float
    smooth_loss: float


@dataclass(frozen=True)
class LrRange:
    """A range test, and what can be read from it. What the curve does not show is None."""

    recipe: str
    knobs: dict[str, str | int | float | bool | None]
    first_lr: float
    last_lr: float
    steps: int
    samples: int
    micro_batches: int
    """Of a step in training. Here a step is one of them, so its gradients are noisier."""
    points: tuple[LrPoint, ...]
    ended: Literal["diverged", "not finite", "at the last rate"]
    own_lr: float
    steepest_lr: float | None
    """Where the loss falls fastest."""
    edge_lr: float | None
    """Where the loss has lost again half of what it had gained: the edge of divergence."""

    @property
    def suggested_lr(self) -> float | None:
        """Where the loss falls fastest, but at least one order below the edge."""
        if self.steepest_lr is None or self.edge_lr is None:
            return self.steepest_lr
        return min(self.steepest_lr, self.edge_lr / 10)
