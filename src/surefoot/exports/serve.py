"""serve: whether a language model fits the device that it will make text on, and how fast it can be at most."""

from __future__ import annotations

import torch

from surefoot.exports.cache_size import cache_numbers, numbers_read
from surefoot.hardware.cluster import counted
from surefoot.hardware.datasheet import Datasheet, datasheet
from surefoot.hardware.here import HERE, here
from surefoot.randomness import kept
from surefoot.recipe.build import build_model
from surefoot.recipe.recipe import Recipe
from surefoot.records.serving import Served, Serving
from surefoot.techniques.precision import parameters_in
from surefoot.world.gpu.target import CONTEXT_BYTES, CPU
from surefoot.world.world import FakeWorld

FORMATS = {"float32": 4, "bfloat16": 2}
"""The bytes of a number. Keys and values have the format of the weights."""


def plan_serving(recipe: Recipe, *, on: str | None = None, batch: int = 1, context: int | None = None) -> Serving:
    """Builds the model on tensors without memory and reads a full context, to see what is kept.

    `on` names the target: `h100-sxm`, or `8xh100-sxm` for 8 that split weights, keys and values evenly; `here` is this
    machine. `context` is the recipe's by default. What a forward pass needs besides is not counted.
    """
    count, single = counted(on or CPU)
    sheet = None if single == CPU else here() if single == HERE else datasheet(single)
    texts, tokens = batch, context or recipe.tokens_per_sample
    with kept(), FakeWorld() as world, torch.no_grad():
        with world.device, parameters_in(recipe.precision):
            model = build_model(recipe).eval()
        held = sum(each.numel() for each in {id(each): each for each in model.parameters()}.values())
        read, cache = numbers_read(model), cache_numbers(model, batch=texts, context=tokens)
    memory = 0 if sheet is None else sheet.usable_bytes or sheet.memory_bytes
    return Serving(
        recipe=recipe.name,
        about=recipe.about,
        knobs=dict(recipe.knobs),
        parameters=held,
        context=tokens,
        batch=texts,
        device=single,
        devices=count,
        memory_bytes=memory,
        bandwidth=0.0 if sheet is None else sheet.memory_bandwidth,
        rows=tuple(
            _served(name, size, held, read, cache, count, texts, sheet, memory) for name, size in FORMATS.items()
        ),
    )


def _served(
    name: str,
    size: int,
    held: int,
    read: int,
    cache: int,
    devices: int,
    batch: int,
    sheet: Datasheet | None,
    memory: int,
) -> Served:
    """On each of the devices, which hold equal parts."""
    weights, kept_bytes = -(-held * size // devices), -(-cache * size // devices)
    own = CONTEXT_BYTES if sheet is not None and (sheet.compute_capability or sheet.architecture) else 0
    bandwidth = 0.0 if sheet is None else sheet.memory_bandwidth
    rate = batch * bandwidth * devices / ((read + cache) * size) if bandwidth else None
    total = weights + kept_bytes + own
    return Served(name, weights, kept_bytes, total, total <= memory if memory else None, rate)
