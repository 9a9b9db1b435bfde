"""The two numbers of an MFU: the FLOPs of a step and the peak of the device."""

from __future__ import annotations

import torch

from surefoot.data.batches import batches_of
from surefoot.meters.books import Books
from surefoot.planning.fake_step import take
from surefoot.randomness import kept
from surefoot.recipe.recipe import Precision, Recipe
from surefoot.step import Step
from surefoot.world.this_machine import present_sheet
from surefoot.world.world import FakeWorld

FORMATS: dict[Precision, str] = {
    "bf16-mixed": "bf16",
    "16-mixed": "fp16",
    "bf16-true": "bf16",
    "fp8": "bf16",
    "fp8-rowwise": "bf16",
}
"""The number format of each precision that does not compute in float32. An MFU in FP8 is held against the bfloat16
peak, so that it can be compared with one in bfloat16: a part of the products stays in bfloat16."""


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """The dense peak of a device for a precision, in FLOP/s. None if no datasheet states it."""
    sheet = present_sheet(device)
    single = "tf32" if torch.get_float32_matmul_precision() != "highest" else "fp32"
    return sheet.dense_flops.get(FORMATS.get(precision, single)) if sheet else None


def step_flops(recipe: Recipe) -> float:
    """The FLOPs that the model needs for one step, counted on fake tensors, without recomputation."""
    world, batches = FakeWorld(density=recipe.density), batches_of(recipe)
    with kept(), world, Books() as books:
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        books.ending = step.optimizer
        take(step, books, (world.take(batches) for _ in range(recipe.micro_batches())))
    tally = books.steps[0].tally
    return tally.total("flops") - tally.total("flops/recompute")
