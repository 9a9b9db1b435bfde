"""Glanced: what the checks that are on while training cost: steps bare and looked at in turns, in one process."""

from __future__ import annotations

import time

from surefoot.checks.run_throttle import RunThrottle, is_looked_at
from surefoot.costs.compare import compared
from surefoot.data.batches import batches_of
from surefoot.recipe.recipe import Recipe
from surefoot.records.profile import Comparison
from surefoot.step import Step
from surefoot.world.world import World

STEPS = 1000
LOOKS = sum(is_looked_at(number, number) for number in range(1, STEPS + 1))
"""So many of the first thousand steps are looked at."""


def glanced(recipe: Recipe, rounds: int) -> Comparison:
    """CPU seconds of steps that are looked at, with the findings they give, over those of steps that are not."""
    step, batches = Step(recipe, World()), batches_of(recipe)
    bare, looked = [], []
    for number in range(rounds + 2):
        if number % LOOKS == 0:
            glances = RunThrottle(step.model, step.optimizer)  # evidence grows with every look, as in one run
        micro_batches = [next(batches) for _ in range(2 * recipe.micro_batches())]
        for side in (bare, looked) if number % 2 else (looked, bare):
            given = (
                micro_batches[: len(micro_batches) // 2] if side is bare else micro_batches[len(micro_batches) // 2 :]
            )
            began = time.process_time()
            if side is looked:
                with glances.at(10):
                    step(given).loss.item()
                glances.new_findings()
            else:
                step(given).loss.item()
            side.append(time.process_time() - began)
    return compared("bare", "looked at", bare[2:], looked[2:])


def share(found: Comparison) -> float:
    """What the looks add to the time of a run's first thousand steps."""
    return LOOKS * (found.ratio - 1) / STEPS
