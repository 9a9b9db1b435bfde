"""audit: repeats the steps between a run's last two checkpoints in memory and compares the result bit for bit."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.distributed.tensor import DTensor

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.outline import leaves, map_leaves
from surefoot.checkpoint.state import restore, state_of
from surefoot.checkpoint.store import Checkpoints
from surefoot.data.batches import Batches, batches_of
from surefoot.errors import RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.audit import Audit
from surefoot.records.run import Run, read_run
from surefoot.step import Step
from surefoot.techniques.accumulate import local_part
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.world.world import RealWorld


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
        step = Step(recipe, world)
        saved = restore(step, earlier)
        batches, at = Batches(iter(())), -1
        held_out = {row.step: row.evaluation_loss for row in world.from_first(run.rows)}
        while step.number < later.step:
            if at != run.batch_of(step.number):
                at = run.batch_of(step.number)
                batches = batches_of(recipe, first_step=at, rank=layout.data_rank, ranks=layout.data_ranks)
                if "data" in saved:
                    cast(Any, batches.dataset).load_state_dict(saved["data"])
            step(world.take(batches) for _ in range(step.micro_batches))
            if (loss := held_out.get(step.number)) is not None:
                step.held_out(loss)
            at += 1
        differing = _differences(state_of(step), later, world)
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
    mine = [not _same(value, expected[place]) for place, value in compared]
    differs = [any(ranks) for ranks in zip(*world.gather(mine), strict=True)]
    return [".".join(map(str, place)) for (place, _), differ in zip(compared, differs, strict=True) if differ]


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor as bytes: NaN is equal to the same NaN, and 0 is not equal to -0."""
    return local_part(tensor.detach()).cpu().contiguous().reshape(-1).view(torch.uint8)
