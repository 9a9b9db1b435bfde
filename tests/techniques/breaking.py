"""A model whose every block breaks the graph."""

import dataclasses
from pathlib import Path

import torch
from torch import nn

from surefoot import Recipe


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x).relu()
        if x.sum().item() > 1e9:  # the break
            x = x + 1
        return x * 2


class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sin()


def breaking(**changes) -> Recipe:
    plain = Recipe(
        model=Breaking,
        data=lambda: torch.utils.data.TensorDataset(torch.randn(64, 4)),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=4,
    )
    return dataclasses.replace(plain, **changes)


LINE = next(
    f"{__file__}:{number}"
    for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
    if text.endswith("# the break")
)
"""Where the break stands, as a report names it."""
