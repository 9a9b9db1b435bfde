"""A recipe with metrics for tests: three classes, held-out data that overfits, and test data."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.world.world import RealWorld


def samples(count: int, seed: int, noise: float = 1.5) -> TensorDataset:
    """Points around three centres."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=draws)
    return TensorDataset(torch.eye(3)[labels] * 2 + noise * torch.randn(count, 3, generator=draws), labels)


def loss(model: nn.Module, batch: Any):
    x, y = batch
    return nn.functional.cross_entropy(model(x), y, reduction="sum"), len(y)


def accuracy(model: nn.Module, batch: Any):
    x, y = batch
    return {"accuracy": ((model(x).argmax(1) == y).sum(), len(y))}


def scored(**changes: Any) -> Recipe:
    """Sixty samples and a large rate: the held-out loss falls and rises again."""
    fields = {
        "model": lambda: nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3)),
        "data": lambda: samples(60, 1),
        "evaluation": lambda: samples(101, 2),
        "loss": loss,
        "metrics": accuracy,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.02),
        "micro_batch_size": 4,
        "max_steps": 60,
        "evaluate_every": 5,
        "evaluation_batches": None,
        "save_every": 4,
        "keep_last": 1,
        "best": "-loss",
        "test": lambda: samples(77, 3),
    }
    return Recipe(**{**fields, **changes})


def metrics_of(micro_batch_size: int, dp: dict[str, int]) -> tuple[float, float, dict[str, float]]:
    """Loss and metrics of the untrained model on the held-out data, and of the test data, on this many ranks."""
    recipe = scored(
        micro_batch_size=micro_batch_size,
        global_batch_tokens=448,
        max_steps=1,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        save_every=None,
        best=None,
        **dp,
    )
    import tempfile

    shared = RealWorld().from_first(tempfile.mkdtemp) if dp else tempfile.mkdtemp()
    run = surefoot.train(recipe, path=f"{shared}/run")
    return run.evaluation_loss, run.metrics["accuracy"], run.tests["test"]
