"""Recipes whose layers are measured, for tests: deep networks that learn well, and some that cannot."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

import surefoot
from surefoot import Recipe
from surefoot.world.world import RealWorld
from tests.scored import loss, samples


class Deep(nn.Module):
    """Linear layers, each with an activation function after it."""

    def __init__(self, kind: type[nn.Module], depth: int, *, gain: float = 1.0, drop: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(3, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), kind()) for _ in range(depth))
        self.drop, self.last = nn.Dropout(drop), nn.Linear(16, 3)
        for block in self.blocks:
            block[0].weight.data *= gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.drop(x))


def layered(
    kind: type[nn.Module] = nn.Tanh,
    depth: int = 3,
    *,
    gain: float = 1.0,
    drop: float = 0.0,
    lr: float = 0.003,
    **changes: Any,
) -> Recipe:
    fields: dict[str, Any] = {
        "model": lambda: Deep(kind, depth, gain=gain, drop=drop),
        "data": lambda: samples(64, 1),
        "loss": loss,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        "micro_batch_size": 4,
        "max_steps": 12,
        "save_every": 4,
        "layers_every": 3,
    }
    return Recipe(**{**fields, **changes})


def halves(model: nn.Module) -> dict[str, ParallelStyle]:
    """A plan that splits the first two layers over ranks."""
    return {"blocks.0.0": ColwiseParallel(), "blocks.1.0": RowwiseParallel()}


def layer_rows(changes: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The log and the layers of a run on these ranks."""
    shared = RealWorld().from_first(tempfile.mkdtemp)
    run = surefoot.train(layered(global_batch_tokens=16, **changes), path=f"{shared}/run")
    return run.rows(), run.layer_rows()
