"""lr_range: trains a fresh model while the learning rate rises from far too small to far too large."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from surefoot.costs import lr_curve
from surefoot.data.batches import batches_of
from surefoot.errors import NonFinite, RecipeError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.returned import checked_optimizer
from surefoot.records.lr_range import LrPoint, LrRange
from surefoot.step import Step
from surefoot.techniques.deterministic import as_asked
from surefoot.training.init_from import with_first_weights
from surefoot.world.world import World

FIRST_LR, LAST_LR, STEPS = 1e-7, 10.0, 100
FEWEST_STEPS = 3 * lr_curve.MODEL_AT_REST


@as_asked
def lr_range(recipe: Recipe, *, first_lr: float = FIRST_LR, last_lr: float = LAST_LR, steps: int = STEPS) -> LrRange:
    """Takes steps of one micro-batch and multiplies the rate by the same factor each time, until the loss diverges."""
    if steps < FEWEST_STEPS or not 0 < first_lr < last_lr:
        raise RecipeError(
            f"a range test of {steps} steps from lr {first_lr:g} to {last_lr:g} shows nothing; "
            f"use at least {FEWEST_STEPS} steps and a rate that rises"
        )
    recipe.refuse_own_step("a range test of learning rates")
    world = World()
    with kept(), world:
        step = Step(with_first_weights(_rising(recipe, first_lr, last_lr, steps)), world)
        rates, losses, ended = _climb(step, world, steps)
    course = lr_curve.smooth(rates, losses)
    steepest, edge = lr_curve.steepest(losses, course), lr_curve.edge(course)
    return LrRange(
        recipe=recipe.name,
        knobs=dict(recipe.knobs),
        first_lr=first_lr,
        last_lr=last_lr,
        steps=steps,
        samples=recipe.micro_batch_size,
        micro_batches=recipe.micro_batches(),
        points=tuple(map(LrPoint, rates, losses, course)),
        ended=ended,
        own_lr=float(step.optimizer.param_groups[0]["own_lr"]),
        steepest_lr=None if steepest is None else rates[steepest],
        edge_lr=None if steepest is None or edge is None else rates[edge],
    )


def _rising(recipe: Recipe, first_lr: float, last_lr: float, steps: int) -> Recipe:
    """The recipe with a schedule that rises from `first_lr`. Parameter groups keep the ratio of their rates."""

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made = checked_optimizer(recipe.optimizer(parameters), recipe.name)
        own_lr = made.param_groups[0]["lr"]
        for group in made.param_groups:
            group.update(lr=first_lr * group["lr"] / own_lr, own_lr=group["lr"])
        return made

    growth = (last_lr / first_lr) ** (1 / (steps - 1))
    return replace(
        recipe,
        optimizer=optimizer,
        schedule=lambda step, _: growth**step,
        ema=None,
        nonfinite="skip",
    )


def _climb(
    step: Step, world: World, steps: int
) -> tuple[list[float], list[float], Literal["diverged", "not finite", "at the last rate"]]:
    rates: list[float] = []
    losses: list[float] = []
    batches = batches_of(step.recipe)
    for _ in range(steps):
        lr, loss = float(step.optimizer.param_groups[0]["lr"]), _loss(step, world.take(batches))
        if not math.isfinite(loss):
            if not losses:
                raise NonFinite(1, loss, math.nan, "before any update")
            return rates, losses, "not finite"
        rates.append(lr)
        losses.append(loss)
        if lr_curve.has_diverged(losses):
            return rates, losses, "diverged"
    return rates, losses, "at the last rate"


def _loss(step: Step, batch: Any) -> float:
    """The loss of one step; NaN if the update was skipped, unless only the loss scale was lowered."""
    outcome = step([batch])
    return outcome.loss.item() if outcome.updated or step.scaler.is_enabled() else math.nan
