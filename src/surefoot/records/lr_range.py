"""LrRange: the loss at learning rates from much too small to much too large."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LrPoint:
    """One step: its learning rate, its loss before the update, and the smoothed loss."""

    lr: float
    loss: float
    smooth_loss: float


@dataclass(frozen=True)
class LrRange:
    """A range test and its results. A result that the curve does not show is None."""

    recipe: str
    knobs: dict[str, str | int | float | bool | None]
    first_lr: float
    last_lr: float
    steps: int
    samples: int
    micro_batches: int
    """Per step in training. Here a step has only one micro-batch, so its gradients are noisier."""
    points: tuple[LrPoint, ...]
    ended: Literal["diverged", "not finite", "at the last rate"]
    own_lr: float
    steepest_lr: float | None
    """The rate at which the loss falls fastest."""
    edge_lr: float | None
    """The rate at which the loss has risen halfway back to its start: the edge of divergence."""

    @property
    def suggested_lr(self) -> float | None:
        """The rate at which the loss falls fastest, but at most a tenth of the edge."""
        if self.steepest_lr is None or self.edge_lr is None:
            return self.steepest_lr
        return min(self.steepest_lr, self.edge_lr / 10)
