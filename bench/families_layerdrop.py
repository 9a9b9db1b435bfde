"""Layers that a fresh random number leaves out, chooses or repeats: what a step takes differs from step to step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

stochastic = family("layerdrop", steps=10)


class Encoder(nn.Module):
    """Blocks of attention, run as `kept` says."""

    def __init__(self, depth: int = 6, width: int = 96) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(400, width), nn.Linear(width, 400)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True) for _ in range(depth)
        )

    def kept(self, number: int) -> bool:
        return True

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for number, layer in enumerate(self.layers):
            if not self.training or self.kept(number):
                x = layer(x)
        return self.head(x)


def masked(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[0].flatten())


def on_text(model: type[nn.Module]) -> Recipe:
    return recipe_of(model, (torch.randint(0, 400, (8, 64)),), loss=masked)


@stochastic
def layerdrop_numpy() -> Recipe:
    class Dropped(Encoder):
        """As fairseq's and transformers' encoders do it."""

        def kept(self, number: int) -> bool:
            return bool(np.random.uniform(0, 1) > 0.3)

    return on_text(Dropped)


@stochastic
def layerdrop_torch() -> Recipe:
    class Dropped(Encoder):
        def kept(self, number: int) -> bool:
            return bool(torch.empty(1).uniform_() > 0.3)

    return on_text(Dropped)


@stochastic
def layerdrop_item() -> Recipe:
    class Dropped(Encoder):
        def kept(self, number: int) -> bool:
            return torch.rand([]).item() >= 0.1 * number

    return on_text(Dropped)


class Stochastic(nn.Module):
    """A residual block that a whole batch skips by chance."""

    def __init__(self, width: int, survives: float) -> None:
        super().__init__()
        self.survives = survives
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and torch.equal(torch.bernoulli(torch.tensor([self.survives])), torch.zeros(1)):
            return x
        return F.relu(x + self.body(x))


@stochastic
def stochastic_depth() -> Recipe:
    def model() -> nn.Module:
        blocks = [Stochastic(32, 1 - 0.1 * number) for number in range(6)]
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
        )

    return recipe_of(model, (torch.randn(16, 3, 32, 32),))


@stochastic
def one_shot_supernet() -> Recipe:
    """A search of architectures: each step trains one path, and paths differ in cost."""

    class Choice(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.paths = nn.ModuleList(
                nn.Sequential(nn.Conv2d(width, m * width, 1), nn.ReLU(), nn.Conv2d(m * width, width, 3, padding=1))
                for m in (1, 3, 6)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + random.choice(list(self.paths))(x)

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), *(Choice(16) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(16, 10),
        )  # fmt: skip

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    return recipe_of(model, (torch.randn(16, 3, 64, 64),), optimizer=optimizer)


@stochastic
def slimmable() -> Recipe:
    """One set of weights for several widths; a step trains the one that is drawn."""

    class Slim(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Linear(128, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            width = int(1024 * random.choice([0.25, 0.5, 0.75, 1.0]))
            x = F.relu(F.linear(x, self.one.weight[:width], self.one.bias[:width]))
            x = F.relu(F.linear(x, self.two.weight[:width, :width], self.two.bias[:width]))
            return F.linear(x, self.three.weight[:, :width], self.three.bias)

    return recipe_of(Slim, (torch.randn(512, 128),))


@stochastic
def teacher_forcing_by_chance() -> Recipe:
    """A decoder that is given the truth or what it said itself, by a coin for each word."""

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.encoder = nn.Embedding(500, 96), nn.GRU(96, 96, batch_first=True)
            self.cell, self.head = nn.GRUCell(96, 96), nn.Linear(96, 500)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            state = self.encoder(self.embed(source))[1][0]
            word, said = target[:, 0], []
            for place in range(1, target.shape[1]):
                state = self.cell(self.embed(word), state)
                said.append(self.head(state))
                word = target[:, place] if random.random() < 0.5 else said[-1].argmax(-1)
            return torch.stack(said, 1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(*batch).flatten(0, 1), batch[1][:, 1:].flatten())

    return recipe_of(Translator, (torch.randint(0, 500, (32, 20)), torch.randint(0, 500, (32, 20))), loss=loss)


@stochastic
def random_recurrence() -> Recipe:
    """A block that is repeated as often as a heavy-tailed draw says; gradients go through the last four rounds."""

    class Recurrent(Encoder):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            told = self.embed(tokens)
            rate = torch.exp(torch.empty(1).normal_(1.4, 0.5))
            rounds = int(torch.poisson(rate).item()) + 1
            x = torch.randn_like(told)
            with torch.no_grad():
                for _ in range(max(0, rounds - 4)):
                    x = self.layers[0](x + told)
            for _ in range(min(4, rounds)):
                x = self.layers[0](x + told)
            return self.head(x)

    return on_text(Recurrent)


@stochastic
def token_dropping() -> Recipe:
    """Patches are left out, more or fewer from step to step; a condition is left out for the whole batch at times."""

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.label = nn.Conv2d(3, 96, 4, 4), nn.Embedding(10, 96)
            layer = nn.TransformerEncoderLayer(96, 4, 384, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(96, 48)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            patches = self.stem(x).flatten(2).transpose(1, 2)
            keep = int(patches.shape[1] * random.uniform(0.3, 1.0))
            patches = patches[:, torch.randperm(patches.shape[1])[:keep]]
            if random.random() > 0.2:
                patches = torch.cat([self.label(y)[:, None], patches], 1)
            return self.head(self.body(patches))

    return recipe_of(Dropping, (torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))))
