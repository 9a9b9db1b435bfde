"""What real ranks do for `test_ranks_planned.py`: steps under the counting allocator, then under the meters."""

from __future__ import annotations

import dataclasses
import gc
from typing import Any

from surefoot.data.batches import batches_of
from surefoot.meters import allocator
from surefoot.meters.books import Books
from surefoot.recipe.recipe import Recipe
from surefoot.recipes.llama import SHAPES, Llama, llama
from surefoot.step import Step
from surefoot.world.world import RealWorld

ROUNDS, STEPS = 4, 4


def taken(name: str) -> dict[str, Any]:
    return taken_by(recipe(**LAYOUTS[name]))


def taken_by(recipe: Recipe) -> dict[str, Any]:
    """The least peaks of a few rounds: a gloo thread can let go of a buffer too late for the next allocation."""
    allocator.install()
    rounds = [_peaks(recipe) for _ in range(ROUNDS)]
    peaks = min(each[0] for each in rounds), min(min(each[1:]) for each in rounds)
    return {"peaks": peaks, "booked": _booked(recipe)}


def _peaks(recipe: Recipe) -> list[int]:
    gc.collect()
    base, found = allocator.live_bytes(), []
    with RealWorld() as world:
        step = Step(recipe, world)
        batches = batches_of(step.recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        for _ in range(STEPS):
            allocator.reset_peak()
            step(world.take(batches) for _ in range(step.micro_batches))
            found.append(allocator.peak_bytes() - base)
    return found


def _booked(recipe: Recipe) -> dict[str, float]:
    """What the traffic meter sees of a second step."""
    with RealWorld() as world, Books() as books:
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        books.traffic.know(step.mesh)
        batches = batches_of(step.recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        for _ in range(2):
            step(books.seen(world.take(batches) for _ in range(step.micro_batches)))
    return {each.name: each.amount for each in books.steps[1].tally.accounts if each.name.startswith(SEEN)}


SMALL = dataclasses.replace(SHAPES["tiny"], layers=2, width=64, hidden=96, context=32, heads=4, kv_heads=2)
LAYOUTS = {
    "fsdp": {"dp_shard": 2, "precision": "bf16-mixed", "micro_batch_size": 16},
    "fp8": {"dp_shard": 2, "precision": "fp8", "micro_batch_size": 16},
    "fp8-rowwise": {"dp_shard": 2, "precision": "fp8-rowwise", "micro_batch_size": 16},
    "ddp": {"dp_replicate": 2, "dp_shard": 1, "micro_batch_size": 16},
    "keys": {"cp": 2, "micro_batch_size": 16},
    "heads": {"cp": 2, "cp_by": "heads", "micro_batch_size": 16},
    "offload": {"dp_shard": 2, "precision": "bf16-mixed", "micro_batch_size": 16, "offload": "activations"},
    "offload-ddp": {"dp_replicate": 2, "dp_shard": 1, "micro_batch_size": 16, "offload": "activations"},
    "offload-recompute": {
        "dp_shard": 2,
        "precision": "bf16-mixed",
        "micro_batch_size": 16,
        "offload": "activations",
        "recompute": "full",
    },
    "tp": {"tp": 2, "dp_shard": 1, "micro_batch_size": 16},
}
LAYOUTS |= {f"{name}-budget": {**LAYOUTS[name], "recompute": "budget=0.5"} for name in ("fsdp", "ddp")}
SEEN = ("traffic", "collectives", "overlap")


def recipe(layers: int = 2, **settings) -> Recipe:
    shape = dataclasses.replace(SMALL, layers=layers)
    small = dataclasses.replace(llama(context=32), micro_batch_size=2, model=lambda: Llama(shape))
    return dataclasses.replace(small, **settings)
