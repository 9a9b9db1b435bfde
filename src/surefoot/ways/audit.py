"""audit: the steps between a run's last two checkpoints, taken again in memory and compared bit for bit."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.outline import leaves
from surefoot.checkpoint.state import restore, state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.data.batches import batches_of
from surefoot.errors import RunError
from surefoot.randomness import kept
from surefoot.recipe import Recipe
from surefoot.records.audit import Audit
from surefoot.records.run import Run, read_run
from surefoot.step import Step
from surefoot.world import World


def audit(recipe: Recipe, path: str) -> Audit:
    """Whether the newest checkpoint of a run is what its steps make of the one before.

    A bit that flipped in memory, in a weight or in what the optimizer remembers, shows here. Nothing is written.
    """
    run = read_run(path)
    earlier, later = _last_two(run)
    world = World()
    with kept(), world:
        step = Step(recipe, world)
        restore(step, earlier)
        batches, at = batches_of(recipe), 0
        while step.number < later.step:
            if at != run.batch_of(step.number):
                at = run.batch_of(step.number)
                batches = batches_of(recipe, first_step=at)
            step(world.take(batches) for _ in range(recipe.micro_batches()))
            at += 1
        differing = _differences(state_of(step), later.load())
    return Audit(path, earlier.step, later.step, tuple(differing))


def _last_two(run: Run) -> tuple[Checkpoint, Checkpoint]:
    sound = []
    for checkpoint in Checkpoints(run.checkpoints):
        checkpoint.verify()
        sound.append(checkpoint)
        if len(sound) == 2:
            return sound[1], sound[0]
    raise RunError(f"{run.path} has {len(sound)} checkpoints; an audit needs two")


def _differences(made: Any, saved: Any) -> list[str]:
    """The names of what differs in any bit."""
    expected = dict(leaves(saved))
    return [
        ".".join(map(str, place))
        for place, value in leaves(made)
        if place in expected and not _same(value, expected[place])
    ]


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes: NaN is equal to the same NaN, and 0 is not equal to -0."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
