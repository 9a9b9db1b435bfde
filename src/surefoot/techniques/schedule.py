"""Schedule: the learning rate of each step, as a factor of the optimizer's own.

A schedule is a function of the step, counted from 0, and of the number of steps. So the factor of any step depends
only on its number. Lengths are in steps, in tokens or a share of the run: `warmup_cosine(warmup_tokens=10_000_000)`.

A function that takes one thing, the optimizer, returns a scheduler of torch instead.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from surefoot.errors import RecipeError
from surefoot.recipe.by_token import ByToken, Schedule
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.returned import checked_factor, checked_scheduler


def constant(
    *, warmup_steps: float | None = None, warmup_tokens: int | None = None, warmup_share: float | None = None
) -> Schedule | ByToken:
    """The optimizer's learning rate at every step; with a warmup, after a linear rise."""

    def make(warmup: float) -> Schedule:
        return lambda step, steps: _rise(step, warmup)

    return _in_steps(make, steps=(warmup_steps,), tokens=(warmup_tokens,), shares=(warmup_share,))


def warmup_cosine(
    *,
    warmup_steps: float | None = None,
    warmup_tokens: int | None = None,
    warmup_share: float | None = None,
    floor: float = 0.1,
) -> Schedule | ByToken:
    """A linear rise over the warmup, then half a cosine down to `floor` at the last step."""

    def make(warmup: float) -> Schedule:
        def factor(step: int, steps: int) -> float:
            if step < warmup:
                return _rise(step, warmup)
            done = _share(step - warmup, steps - warmup)
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

        return factor

    return _in_steps(make, steps=(warmup_steps,), tokens=(warmup_tokens,), shares=(warmup_share,))


def warmup_linear(
    *,
    warmup_steps: float | None = None,
    warmup_tokens: int | None = None,
    warmup_share: float | None = None,
    floor: float = 0.0,
) -> Schedule | ByToken:
    """A linear rise over the warmup, then a line down to `floor` at the last step."""

    def make(warmup: float) -> Schedule:
        def factor(step: int, steps: int) -> float:
            if step < warmup:
                return _rise(step, warmup)
            return 1 - (1 - floor) * _share(step - warmup, steps - warmup)

        return factor

    return _in_steps(make, steps=(warmup_steps,), tokens=(warmup_tokens,), shares=(warmup_share,))


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


class TorchScheduler:
    """A scheduler of torch that a recipe made. Step it once per update, and tell it each held-out loss."""

    def __init__(self, made: LRScheduler, recipe: Recipe) -> None:
        self.made, self.name, self.steps = made, type(made).__name__, recipe.steps()
        self._updates = 0
        self._waits = isinstance(made, ReduceLROnPlateau)
        if not isinstance(made, ReduceLROnPlateau):
            return
        if recipe.loss is None or recipe.evaluation is None or recipe.evaluate_every is None:
            raise RecipeError(
                f"{recipe.name}: ReduceLROnPlateau waits for held-out losses; set loss, evaluation and evaluate_every"
            )
        if made.mode != "min":
            raise RecipeError(f"{recipe.name}: ReduceLROnPlateau gets the held-out loss: it needs mode='min'")

    def step(self) -> None:
        """Moves on after an update. After the recipe's last update it stays where it is."""
        if self._waits or self._updates == self.steps:
            return
        self._updates += 1
        try:
            self.made.step()
        except ValueError as error:  # OneCycleLR has an end
            raise RecipeError(
                f"{self.name} cannot take update {self._updates} of {self.steps or 'this run'}: {error}"
            ) from error

    def evaluated(self, loss: float) -> None:
        """Tells the held-out loss to a scheduler that waits for it."""
        if self._waits:
            cast(ReduceLROnPlateau, self.made).step(loss)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates, "made": self.made.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._updates = state_dict["updates"]
        self.made.load_state_dict(state_dict["made"])


def scheduler(recipe: Recipe, optimizer: torch.optim.Optimizer) -> LRScheduler | TorchScheduler:
    """A scheduler that follows the recipe's schedule. Step it once per update."""
    if recipe.schedules_itself:
        make = cast(Callable[[torch.optim.Optimizer], LRScheduler], recipe.schedule)
        return TorchScheduler(checked_scheduler(make(optimizer), optimizer, recipe.name), recipe)
    return by_factor(recipe, optimizer)


def by_factor(recipe: Recipe, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """A scheduler whose factor of any step depends only on its number."""
    follow = cast(Schedule | ByToken | None, recipe.schedule) or constant()
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
    make: Callable[..., Schedule],
    *,
    steps: tuple[float | None, ...],
    tokens: tuple[int | None, ...],
    shares: tuple[float | None, ...] = (),
) -> Schedule | ByToken:
    """A schedule from lengths in steps or in shares of the run, or a `ByToken` from lengths in tokens."""
    given = [lengths for lengths in (steps, tokens, shares) if any(length is not None for length in lengths)]
    if len(given) > 1:
        raise RecipeError("give all lengths of a schedule in steps, all in tokens, or all as shares, not a mix")
    if given == [tokens]:
        return ByToken(lambda tokens_per_step: make(*((length or 0) / tokens_per_step for length in tokens)))
    if given == [shares]:
        return lambda step, whole: make(*(_of_run(share or 0, whole) for share in shares))(step, whole)
    return make(*(length or 0 for length in steps))


def _of_run(share: float, steps: int) -> int:
    """A share of the steps, rounded down, but at least one step."""
    return max(1, math.floor(share * steps + 1e-9)) if share else 0
