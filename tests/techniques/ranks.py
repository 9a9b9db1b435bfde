"""What ranks do in the tests of techniques: they take steps and return what came of them."""

from __future__ import annotations

from typing import Any

import torch

from surefoot import load_recipe
from surefoot.data.batches import batches_of
from surefoot.step import Step
from surefoot.world import RealWorld

SMALL = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=512"]
"""Eight micro-batches: two for each of four ranks."""


def losses(words: list[str], steps: int = 20) -> dict[str, Any]:
    """A small gpt, step by step."""
    recipe = load_recipe("gpt", [*SMALL, *words])
    with RealWorld() as world:
        step = Step(recipe, world)
        batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        outcomes = [step(world.take(batches) for _ in range(step.micro_batches)) for _ in range(steps)]
        return {
            "losses": [each.loss.item() for each in outcomes],
            "norms": [each.grad_norm.item() for each in outcomes],
            "counts": [float(each.count) for each in outcomes],
            "choices": step.choices(),
            "weights": {name: whole(each) for name, each in step.model.state_dict().items()},
        }


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()
