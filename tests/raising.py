"""Recipes that raise, each in one place: `raising.py:recipe where=loss`."""

import torch
from torch import nn
from torch.utils.data import Dataset

from surefoot import Recipe


class OwnError(Exception):
    pass


def fail(where: str) -> None:
    raise OwnError(f"raised in {where}")


class Model(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.where = where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.where == "forward":
            fail("forward")
        return self.layer(x)


class Samples(Dataset):
    def __init__(self, where: str) -> None:
        self.where = where

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.where in ("sample", "worker"):
            fail("sample")
        return torch.full((2,), float(index))


def recipe(where: str = "") -> Recipe:
    def at(place: str, made):
        if where == place:
            fail(place)
        return made()

    if where == "recipe":
        fail("recipe")
    return Recipe(
        model=lambda: at("model", lambda: Model(where)),
        data=lambda: at("data", lambda: Samples(where)),
        loss=lambda model, batch: at("loss", lambda: model(batch).square().mean()),
        optimizer=lambda parameters: at("optimizer", lambda: torch.optim.SGD(parameters, lr=0.1)),
        schedule=lambda step, steps: at("schedule", lambda: 1.0),
        collate=lambda samples: at("collate", lambda: torch.stack(samples)),
        workers=1 if where == "worker" else 0,
        micro_batch_size=2,
        max_steps=2,
    )
