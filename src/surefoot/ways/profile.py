"""profile: what a few real steps of a recipe take, by the same meters as the plan."""

import time

import torch

from surefoot.data.batches import micro_batches
from surefoot.meters.books import Books
from surefoot.meters.clock import ClockMeter
from surefoot.phases import Phases
from surefoot.recipe import Recipe
from surefoot.records.profile import Profile
from surefoot.records.tally import Account, Tally
from surefoot.step import Step
from surefoot.world import World


def profile(recipe: Recipe, *, timed_steps: int = 5) -> Profile:
    """Two steps under all meters, then `timed_steps` under the clock alone, so that neither disturbs the other."""
    world = World()
    batches = micro_batches(recipe.data(), size=recipe.micro_batch_size, seed=recipe.seed)
    with torch.random.fork_rng(), world:
        with Books() as books:
            step = Step(recipe, world)
            books.close()
            books.phases.find(step.model)
            for _ in range(2):
                step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
        step_seconds = []
        with Phases(step.model) as phases:
            clock = ClockMeter(phases)
            phases.listeners.append(clock)
            for _ in range(timed_steps):
                began = time.perf_counter()
                step(world.take(batches) for _ in range(recipe.micro_batches()))
                step_seconds.append(time.perf_counter() - began)
            spent = clock.accounts()
        parameters = sum(each.numel() for each in step.model.parameters())
    return Profile(
        recipe=recipe.name,
        knobs=dict(recipe.knobs),
        device=str(world.device),
        parameters=parameters,
        first=books.steps[0],
        steady=books.steps[1],
        timed_steps=timed_steps,
        step_seconds=tuple(step_seconds),
        clock=Tally.of(Account(each.name, each.amount / timed_steps, each.unit) for each in spent),
    )
