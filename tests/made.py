"""Recipes whose data is made while they train: a function, a replay buffer, an iterator with a state, a generator."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import surefoot
from surefoot import Recipe
from surefoot.errors import SurefootError
from surefoot.world.world import RealWorld


def noisy_line(number: int, size: int) -> tuple[Tensor, Tensor]:
    """Points that depend on the number of the micro-batch and on every generator."""
    x = torch.randn(size, 4) + number % 3
    return x, x.sum(1) + random.random() + float(np.random.rand())


def plain_line(number: int, size: int) -> tuple[Tensor, Tensor]:
    """Points that follow from their numbers."""
    x = torch.arange(number * size, (number + 1) * size).float()[:, None].expand(-1, 4) / 100
    return x, x.sum(1)


class Replay:
    """Keeps the last 32 states of a walk, and draws from them. The step may change where the walk goes on."""

    def __init__(self) -> None:
        self.states, self.count, self.at = torch.zeros(32, 4), 0, [0.0, 0.0, 0.0, 0.0]

    def batch(self, number: int, size: int) -> dict[str, Any]:
        self.at = [each + random.gauss(0.0, 0.1) for each in self.at]
        self.states[self.count % 32] = torch.tensor(self.at)
        self.count += 1
        return {"x": self.states[torch.randint(0, min(self.count, 32), (size,))], "buffer": self}

    def state_dict(self) -> dict[str, Any]:
        return {"states": self.states, "count": self.count, "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.states, self.count, self.at = state["states"].clone(), state["count"], list(state["at"])


class Walk(Iterator[Any]):
    """An iterator over micro-batches that can be put back."""

    def __init__(self, length: int = 10**9) -> None:
        self.place, self.left = 0.0, length

    def __next__(self) -> tuple[Tensor, Tensor]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        self.place += float(torch.randn(()))
        return torch.full((4, 4), self.place) + torch.randn(4, 4), torch.randn(4)

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "left": self.left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place, self.left = state["place"], state["left"]


def drawn() -> Iterator[tuple[Tensor, Tensor]]:
    """Forty samples with random numbers."""
    for number in range(40):
        yield torch.randn(4) + number % 2, torch.tensor(float(number % 2))


def squares(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return (model(x).squeeze(1) - y).square().sum(), len(y)


def lengths(model: nn.Module, batch: Any) -> Tensor:
    return (model(batch["x"]).squeeze(1) - batch["x"].norm(dim=1)).square().mean()


def recalled(network: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
    """Learns the length of a state, and takes the walk back towards its start."""
    optimizer.zero_grad()
    loss = lengths(network, batch)
    loss.backward()
    optimizer.step()
    batch["buffer"].at = [0.9 * each for each in batch["buffer"].at]
    return loss


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))


def recipe(data: Any = lambda: noisy_line, **changes: Any) -> Recipe:
    fields: dict[str, Any] = {
        "model": network,
        "data": data,
        "loss": squares,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        "micro_batch_size": 4,
        "max_steps": 24,
        "save_every": 5,
    }
    return Recipe(**{**fields, **changes})


def making() -> Recipe:
    """A recipe whose data is a function."""
    return recipe(max_steps=400)


def replaying(max_steps: int = 24) -> Recipe:
    """A recipe with a replay buffer and a step of its own."""
    return recipe(
        Replay,
        step=recalled,
        loss=None,
        optimizer=lambda network: torch.optim.Adam(network.parameters(), lr=0.01),
        max_steps=max_steps,
    )


def losses(changes: dict[str, Any]) -> list[float]:
    """The losses of a run on these ranks."""
    shared = RealWorld().from_first(tempfile.mkdtemp)
    fields = {"data": lambda: plain_line, "global_batch_tokens": 16, "model": lambda: nn.Linear(4, 1), **changes}
    return [row.loss for row in surefoot.train(recipe(**fields), path=f"{shared}/run").rows()]


def refused() -> str:
    """What a run of data with a state says on these ranks."""
    shared = RealWorld().from_first(tempfile.mkdtemp)
    try:
        surefoot.train(recipe(Walk), path=f"{shared}/run")
    except SurefootError as error:
        return str(error)
    return ""
