"""overfit: trains on one batch only. A model that cannot learn one batch by heart has a bug."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from surefoot.costs.overfit_verdict import causes, judge, known
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.returned import checked_model, checked_optimizer
from surefoot.records.overfit import Attempt, Overfit, Wiring
from surefoot.step import Step
from surefoot.techniques.deterministic import as_asked
from surefoot.training.init_from import with_first_weights
from surefoot.world.world import World

MAX_STEPS = 200
NEAR_ZERO = 0.01
"""The target, as a share of the first loss."""
MAX_TOKENS = 1024
"""The largest batch, so that a model of a few million parameters takes seconds."""
SWITCHED_OFF = {
    "schedule": "a warm-up would use up the steps",
    "weight decay": "it pulls weights away from what they learn",
    "dropout": "it hides another part of the batch at every step",
    "accumulation": "one micro-batch makes one step",
}


@as_asked
def overfit(
    recipe: Recipe, *, max_steps: int = MAX_STEPS, target_loss: float | None = None, allow: Iterable[str] = ()
) -> Overfit:
    """Trains a fresh model on one micro-batch until its loss is near zero, at its own learning rate or another."""
    recipe.refuse_own_step("learning one batch by heart")
    world, plain, allowed = World(), with_first_weights(_plain(recipe)), known(allow)
    attempts: list[Attempt] = []
    with kept(), world:
        batch = world.take(batches_of(plain))
        still = Step(_at_rate(plain, 0.0), world)
        repeated = tuple(loss for loss in _losses(still, batch, 2) if math.isfinite(loss))
        target = _target(recipe, repeated) if target_loss is None else target_loss
        for rate in _rates(attempts):
            step = Step(_at_rate(plain, rate), world)
            silent = _without_gradient(step.model)
            attempts.append(_attempt(step, batch, max_steps, target))
            moved = still if attempts[-1].outcome == "diverged" else step
            wiring = Wiring(len(step.parameters), repeated, _detached(moved, silent, batch), _outside(step))
            if attempts[-1].outcome == "learned" or wiring.random or causes(wiring, allowed):
                break
    return Overfit(
        recipe=recipe.name,
        knobs=dict(recipe.knobs),
        samples=plain.micro_batch_size,
        max_steps=max_steps,
        target_loss=target,
        switched_off=SWITCHED_OFF,
        wiring=wiring,
        attempts=tuple(attempts),
        findings=judge(wiring, attempts, recipe=recipe.name, allowed=allowed),
    )


def _plain(recipe: Recipe) -> Recipe:
    """The recipe with one small micro-batch per step, and without anything that works against learning it."""
    adapt = recipe.adapt
    samples = min(recipe.micro_batch_size, max(2, MAX_TOKENS // recipe.tokens_per_sample))
    return replace(
        recipe,
        model=lambda: _without_dropout(checked_model(recipe.model(), recipe.name)),
        adapt=None if adapt is None else lambda model: _without_dropout(checked_model(adapt(model), recipe.name)),
        schedule=None,
        ema=None,
        micro_batch_size=samples,
        global_batch_tokens=None,
        nonfinite="skip",
    )


def _without_dropout(model: nn.Module) -> nn.Module:
    """Sets module attributes like `dropout` and `drop_prob` to 0, and `p` in modules with "drop" in their name."""
    for module in model.modules():
        drops = "drop" in type(module).__name__.lower()
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or (name == "p" and drops)):
                setattr(module, name, 0.0)
    return model


def _rates(attempts: list[Attempt]) -> Iterator[float]:
    """The recipe's own rate, then rates 10 times higher and lower, in each direction as long as it helps.

    A rate that is merely too small or too large must not look like a wiring bug.
    """
    yield 1.0
    for factor in (10.0, 0.1) if attempts[0].outcome != "diverged" else (0.1,):
        best = attempts[0].last_loss
        for power in (1, 2, 3, 4):
            yield factor**power
            if attempts[-1].last_loss > 0.99 * best:
                break
            best = attempts[-1].last_loss


def _at_rate(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with its learning rates times `rate`, and no weight decay."""

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made = checked_optimizer(recipe.optimizer(parameters), recipe.name)
        for group in made.param_groups:
            group["lr"] = group["lr"] * rate
            group["weight_decay"] = 0.0
        return made

    return replace(recipe, optimizer=optimizer)


def _target(recipe: Recipe, losses: tuple[float, ...]) -> float:
    if losses and losses[0] <= 0:
        raise RecipeError(
            f"the first loss of {recipe.name} is {losses[0]:.4g}, so a loss near zero shows nothing; "
            "set the loss that counts as learned with --target-loss"
        )
    return NEAR_ZERO * losses[0] if losses else 0.0


def _attempt(step: Step, batch: Any, max_steps: int, target: float) -> Attempt:
    losses: list[float] = []

    def ended(outcome: Any) -> Attempt:
        return Attempt(float(step.optimizer.param_groups[0]["lr"]), tuple(losses), outcome)

    for loss in _losses(step, batch, max_steps):
        if not math.isfinite(loss):
            return ended("diverged")
        losses.append(loss)
        if loss <= target:
            return ended("learned")
        if len(losses) == max_steps // 2 and loss > 0.9 * losses[0]:
            break
    return ended("not learned")


def _losses(step: Step, batch: Any, most: int) -> Iterator[float]:
    """The loss of each step; none if the loss has no graph, so that torch refuses its backward."""
    for _ in range(most):
        try:
            yield step([batch]).loss.item()
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            return


def _without_gradient(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters without a nonzero gradient so far; the dict shrinks while the model trains."""
    waiting = {name: each for name, each in model.named_parameters() if each.requires_grad}
    for name, parameter in waiting.items():
        parameter.register_post_accumulate_grad_hook(partial(_hear, waiting, name))
    return waiting


def _hear(waiting: dict[str, nn.Parameter], name: str, parameter: torch.Tensor) -> None:
    if name in waiting and parameter.grad is not None and parameter.grad.any():
        del waiting[name]


def _detached(step: Step, silent: dict[str, nn.Parameter], batch: Any) -> tuple[str, ...]:
    """The parameters that change the loss but have no gradient. A parameter that is merely unused is no bug."""
    if not silent:
        return ()
    parameters = dict(step.model.named_parameters())
    before = _loss(step, batch)
    if not torch.equal(_loss(step, batch), before):  # a random loss changes by itself
        return ()
    return tuple(name for name in silent if not torch.equal(_disturbed(step, parameters[name], batch), before))


def _loss(step: Step, batch: Any) -> torch.Tensor:
    loss = step.evaluate([batch]).loss
    assert loss is not None
    return loss


@torch.no_grad()
def _disturbed(step: Step, parameter: nn.Parameter, batch: Any) -> torch.Tensor:
    kept = parameter.clone()
    parameter.add_(torch.randn_like(parameter))
    loss = _loss(step, batch)
    parameter.copy_(kept)
    return loss


def _outside(step: Step) -> tuple[str, ...]:
    held = {id(each) for group in step.optimizer.param_groups for each in group["params"]}
    named = step.model.named_parameters()
    return tuple(name for name, each in named if each.requires_grad and id(each) not in held)
