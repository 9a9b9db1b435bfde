"""plan: what a recipe's step will take, found by running it on tensors that have no memory."""

import torch

from surefoot.data.batches import micro_batches
from surefoot.kernels import Kernels
from surefoot.meters.books import Books
from surefoot.recipe import Recipe
from surefoot.records.plan import Plan
from surefoot.step import Step
from surefoot.world import FakeWorld


def plan(recipe: Recipe) -> Plan:
    """Runs two symbolic steps: the first makes the optimizer's state, the second is what all others are like."""
    kernels = Kernels()
    world = FakeWorld(kernels=kernels, density=recipe.density)
    batches = micro_batches(recipe.data(), size=recipe.micro_batch_size, seed=recipe.seed)
    with torch.random.fork_rng(), world:
        step = Step(recipe, world)
        with Books(step.model, kernels=kernels) as books:
            for _ in range(2):
                step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
        parameters = sum(each.numel() for each in step.model.parameters())
    return Plan(
        recipe=recipe.name,
        about=recipe.about,
        knobs=dict(recipe.knobs),
        parameters=parameters,
        tokens_per_step=recipe.tokens_per_step,
        micro_batches=recipe.micro_batches(),
        steps=recipe.steps(),
        first=books.steps[0],
        steady=books.steps[1],
        assumptions=tuple(f"{note} ({times} times)" for note, times in world.assumptions.items()),
    )
