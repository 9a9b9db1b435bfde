"""Ten small models of different kinds, as recipes, for `memory_limit.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from surefoot import Recipe

CLASSES, WORDS, CONTEXT, SAMPLES = 10, 512, 96, 256


class Made(Dataset[Any]):
    """Samples that are made when they are read, so that a data set takes no memory."""

    def __init__(self, make: Callable[[torch.Generator], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> Any:
        return self.make(torch.Generator().manual_seed(number))


def image(draw: torch.Generator) -> Any:
    return torch.randn(3, 32, 32, generator=draw), torch.randint(0, CLASSES, (), generator=draw)


def row(draw: torch.Generator) -> Any:
    return torch.randn(256, generator=draw), torch.randint(0, CLASSES, (), generator=draw)


def text(draw: torch.Generator) -> Any:
    return torch.randint(0, WORDS, (CONTEXT + 1,), generator=draw)


def series(draw: torch.Generator) -> Any:
    return torch.randn(64, 32, generator=draw), torch.randint(0, CLASSES, (), generator=draw)


def classified(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def next_word(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def recipe_of(model: Callable[[], nn.Module], sample: Any, loss: Any, **more: Any) -> Recipe:
    settings = {"micro_batch_size": 64, "max_steps": 4, **more}
    return Recipe(
        model=model,
        data=lambda: Made(sample),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        **settings,
    )


# ------------------------------------------------------------------------------------------------------------- images


def conv(given: int, made: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(given, made, 3, stride, padding=1), nn.BatchNorm2d(made), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = conv(width, width), conv(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x))


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.start, self.down, self.deep = conv(3, width), conv(width, 2 * width, 2), conv(2 * width, 2 * width)
        self.up, self.end = nn.ConvTranspose2d(2 * width, width, 2, 2), nn.Conv2d(2 * width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.start(x)
        return self.end(torch.cat([first, self.up(self.deep(self.down(first)))], 1))


class VAE(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(3072, width), nn.GELU(), nn.Linear(width, 64))
        self.decode = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, 3072))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, spread = self.encode(x).chunk(2, -1)
        return self.decode(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


def evidence(model: nn.Module, batch: Any) -> torch.Tensor:
    made, mean, spread = model(batch[0])
    divergence = (mean.square() + spread.exp() - 1 - spread).sum(-1) / 2
    return (F.mse_loss(made, batch[0].flatten(1), reduction="none").sum(-1) + divergence).mean()


def cnn(width: int = 24) -> Recipe:
    def model() -> nn.Module:
        body = [conv(3, width), conv(width, width), nn.MaxPool2d(2), conv(width, 2 * width)]
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, CLASSES))

    return recipe_of(model, image, classified)


def resnet(width: int = 24, depth: int = 4) -> Recipe:
    def model() -> nn.Module:
        blocks = [Residual(width) for _ in range(depth)]
        ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)
        return nn.Sequential(conv(3, width), *blocks, *ends)

    return recipe_of(model, image, classified, micro_batch_size=32)


def unet(width: int = 16) -> Recipe:
    return recipe_of(lambda: UNet(width), image, lambda model, batch: F.mse_loss(model(batch[0]), batch[0]))


def vae(width: int = 32) -> Recipe:
    return recipe_of(lambda: VAE(width), image, evidence, micro_batch_size=256)


# ------------------------------------------------------------------------------------------------- text and the rest


class Words(nn.Module):
    """A model of text: an embedding, blocks, and the next word."""

    def __init__(self, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class Block(nn.Module):
    """Causal attention, then a network for each word."""

    def __init__(self, width: int, heads: int, inner: nn.Module) -> None:
        super().__init__()
        self.heads, self.inner = heads, inner
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.inner(x)


class Experts(nn.Module):
    """Every expert computes every word; the router weighs them."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(width, count), nn.ModuleList(dense(width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.router(x).softmax(-1)
        return sum(weights[..., n, None] * expert(x) for n, expert in enumerate(self.experts))


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, width, 2, batch_first=True), nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Mixer(nn.Module):
    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.over_time, self.over_features = dense(length), dense(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_time(x.transpose(1, 2)).transpose(1, 2)
        return x + self.over_features(x)


class Pooled(nn.Module):
    """Blocks over a series, and the class of their mean."""

    def __init__(self, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.start, self.blocks = nn.Linear(32, width), nn.ModuleList(blocks)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.start(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


def dense(width: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def mlp(width: int = 128, depth: int = 8) -> Recipe:
    def model() -> nn.Module:
        hidden = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
        return nn.Sequential(nn.Linear(256, width), *hidden, nn.Linear(width, CLASSES))

    return recipe_of(model, row, classified, micro_batch_size=256)


def gpt(width: int = 64, depth: int = 4) -> Recipe:
    blocks = [lambda: Block(width, 4, dense(width))] * depth
    return recipe_of(lambda: Words(width, [make() for make in blocks]), text, next_word, micro_batch_size=16)


def moe(width: int = 48, depth: int = 2, experts: int = 4) -> Recipe:
    blocks = [lambda: Block(width, 4, Experts(width, experts))] * depth
    return recipe_of(lambda: Words(width, [make() for make in blocks]), text, next_word, micro_batch_size=16)


def encoder(width: int = 64, depth: int = 3) -> Recipe:
    def model() -> nn.Module:
        kind = nn.TransformerEncoderLayer
        return Pooled(width, [kind(width, 4, 4 * width, batch_first=True) for _ in range(depth)])

    return recipe_of(model, series, classified)


def lstm(width: int = 96) -> Recipe:
    return recipe_of(lambda: Recurrent(width), series, classified)


def mixer(width: int = 64, depth: int = 4) -> Recipe:
    return recipe_of(lambda: Pooled(width, [Mixer(64, width) for _ in range(depth)]), series, classified)


MODELS = (mlp, cnn, resnet, unet, vae, gpt, moe, encoder, lstm, mixer)
