"""audit: repeats the steps between a run's last two checkpoints in memory and compares the result bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.outline import leaves, map_leaves
from surefoot.checkpoint.state import state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.audit import Audit
from surefoot.records.run import Run, read_run
from surefoot.techniques.deterministic import as_asked
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.training.replay import Replay, same_bits
from surefoot.world.world import RealWorld


@as_asked
def audit(recipe: Recipe, path: str) -> Audit:
    """Checks that the steps since the second newest checkpoint of a run lead to the newest one.

    It finds a bit that flipped in memory, in a weight or in the optimizer state. It writes nothing.
    On many ranks each checks its own part; the layout must be that of the run.
    """
    run, world = read_run(path), RealWorld()
    layout = layout_of(recipe, rank=world.rank, ranks=world.ranks)
    if run.layout != str(layout):
        raise RunError(f"{path} was trained as {run.layout}, and this is {layout}: an audit needs the same layout")
    recipe = with_global_batch(recipe, layout)
    with kept(), world:
        earlier, later = _last_two(run)
        replay = Replay(run, recipe, world)
        replay.start(earlier)
        while replay.step.number < later.step:
            replay.advance()
        differing = _differences(state_of(replay.step), later, world)
    return Audit(path, earlier.step, later.step, tuple(differing))


def _last_two(run: Run) -> tuple[Checkpoint, Checkpoint]:
    sound = []
    for checkpoint in Checkpoints(run.checkpoints):
        checkpoint.verify()
        sound.append(checkpoint)
        if len(sound) == 2:
            return sound[1], sound[0]
    raise RunError(f"{run.path} has {len(sound)} checkpoints; an audit needs two")


def _differences(made: Any, later: Checkpoint, world: RealWorld) -> list[str]:
    """The names of the parts that differ in any bit, on any rank."""
    shards = map_leaves(lambda _, leaf: torch.empty_like(leaf) if isinstance(leaf, DTensor) else None, made)
    expected = dict(leaves(later.load(shards)))
    compared = [(place, value) for place, value in leaves(made) if place in expected]
    mine = [not same_bits(value, expected[place]) for place, value in compared]
    differs = [any(ranks) for ranks in zip(*world.gather(mine), strict=True)]
    return [".".join(map(str, place)) for (place, _), differ in zip(compared, differs, strict=True) if differ]
