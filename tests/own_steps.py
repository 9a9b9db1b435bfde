"""Recipes with a step of their own."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def two(**changes) -> Recipe:
    """Two networks, each with its own optimizer."""

    def step(networks, optimizers, batch):
        loss = (networks["b"](networks["a"](batch[0])) ** 2).mean()
        loss.backward()
        for each in optimizers.values():
            each.step()
            each.zero_grad()
        return loss

    fields = {
        "model": lambda: {"a": nn.Linear(4, 4), "b": nn.Linear(4, 1)},
        "data": lambda: TensorDataset(torch.randn(32, 4)),
        "optimizer": lambda networks: {
            "a": torch.optim.Adam(networks["a"].parameters(), lr=0.1),
            "b": torch.optim.SGD(networks["b"].parameters(), lr=0.2, momentum=0.9),
        },
        "step": step,
        "micro_batch_size": 8,
        "max_steps": 6,
    }
    return Recipe(**{**fields, **changes})
