"""Schedule: the learning rate of each step, as a factor of the optimizer's own.

A schedule is a function of the step, counted from 0, and of the number of steps. So the factor of any step depends
only on its number. Lengths are in steps or in tokens: `warmup_cosine(warmup_tokens=10_000_000)`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.returned import checked_factor

Schedule = Callable[[int, int], float]


@dataclass(frozen=True)
class ByToken:
    """A schedule with lengths in tokens. `by_step(tokens_per_step)` turns it into a schedule by step."""

    by_step: Callable[[int], Schedule]


def constant(*, warmup_steps: float | None = None, warmup_tokens: int | None = None) -> Schedule | ByToken:
    """The optimizer's learning rate at every step; with a warmup, after a linear rise."""

    def make(warmup: float) -> Schedule:
        return lambda step, steps: _rise(step, warmup)

    return _in_steps(make, steps=(warmup_steps,), tokens=(warmup_tokens,))


def warmup_cosine(
    *, warmup_steps: float | None = None, warmup_tokens: int | None = None, floor: float = 0.1
) -> Schedule | ByToken:
    """A linear rise over the warmup, then half a cosine down to `floor` at the last step."""

    def make(warmup: float) -> Schedule:
        def factor(step: int, steps: int) -> float:
            if step < warmup:
                return _rise(step, warmup)
            done = _share(step - warmup, steps - warmup)
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

        return factor

    return _in_steps(make, steps=(warmup_steps,), tokens=(warmup_tokens,))


def warmup_stable_decay(
    *,
    warmup_steps: float | None = None,
    decay_steps: float | None = None,
    warmup_tokens: int | None = None,
    decay_tokens: int | None = None,
    floor: float = 0.0,
) -> Schedule | ByToken:
    """A linear rise over the warmup, then the full rate, then a line down to `floor` over the last steps."""

    def make(warmup: float, decay: float) -> Schedule:
        def factor(step: int, steps: int) -> float:
            done = _share(step - (steps - decay), decay)
            return min(_rise(step, warmup), 1 - (1 - floor) * done)

        return factor

    return _in_steps(make, steps=(warmup_steps, decay_steps), tokens=(warmup_tokens, decay_tokens))


def step_decay(
    *, every_steps: float | None = None, every_tokens: int | None = None, factor: float = 0.1
) -> Schedule | ByToken:
    """Multiplies the rate by `factor` after every `every_steps` or `every_tokens`."""

    def make(every: float) -> Schedule:
        return lambda step, steps: factor ** math.floor(step / every + 1e-9) if every else 1.0

    return _in_steps(make, steps=(every_steps,), tokens=(every_tokens,))


def scheduler(recipe: Recipe, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """A torch scheduler that follows the recipe's schedule. Step it once per update."""
    follow = recipe.schedule or constant()
    if isinstance(follow, ByToken):
        follow = follow.by_step(recipe.tokens_per_step)
    steps = recipe.steps() or 0
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: checked_factor(follow(step, steps), step))


def resume(scheduler: torch.optim.lr_scheduler.LambdaLR, updates: int) -> None:
    """Sets a fresh scheduler, and its optimizer's learning rates, to the state after this many updates."""
    scheduler.last_epoch = updates
    for group, base, factor in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * factor(updates)


def _rise(step: int, warmup: float) -> float:
    """A line that reaches 1 in the last step of the warmup."""
    return min(1.0, (step + 1) / warmup) if warmup > 0 else 1.0


def _share(done: float, whole: float) -> float:
    """The share of a stretch that is done, from 0 to 1. A stretch of length 0 is done once it begins."""
    return min(1.0, max(0.0, done / whole)) if whole > 0 else float(done >= 0)


def _in_steps(
    make: Callable[..., Schedule], *, steps: tuple[float | None, ...], tokens: tuple[int | None, ...]
) -> Schedule | ByToken:
    """A schedule from lengths in steps, or a `ByToken` from lengths in tokens."""
    if all(length is None for length in tokens):
        return make(*(length or 0 for length in steps))
    if any(length is not None for length in steps):
        raise RecipeError("give all lengths of a schedule in steps, or all in tokens, not a mix")
    return ByToken(lambda tokens_per_step: make(*((length or 0) / tokens_per_step for length in tokens)))
