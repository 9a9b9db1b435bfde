"""Schedule: the learning rate of each step, as a factor of the optimizer's own."""

import math
from collections.abc import Callable

import torch

Schedule = Callable[[int, int], float]


def constant() -> Schedule:
    """The optimizer's learning rate at every step."""
    return lambda step, steps: 1.0


def warmup_cosine(*, warmup_steps: int, floor: float = 0.1) -> Schedule:
    """A linear rise over `warmup_steps`, then half a cosine down to `floor` at the last step."""

    def factor(step: int, steps: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        done = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return factor


def scheduler(
    schedule: Schedule | None, optimizer: torch.optim.Optimizer, steps: int | None
) -> torch.optim.lr_scheduler.LambdaLR:
    """A torch scheduler that follows the schedule; it is stepped once per update."""
    follow = schedule or constant()
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: follow(step, steps or 0))
