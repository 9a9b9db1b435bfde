"""Minerals by their spectra: long one-dimensional signals, dilated convolutions with a gate, a recipe."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

LINES, MINERALS = 512, 5


class Gate(torch.autograd.Function):
    """x * sigmoid(x), recomputed on the way back from x alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Spectra(Dataset):
    """Each mineral has three lines; heights and a slow background differ from sample to sample."""

    def __init__(self, count: int, seed: int, noise: float = 0.0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.noise = noise
        self.mineral = torch.randint(MINERALS, (count,), generator=g)
        at = torch.arange(LINES)
        peaks = torch.tensor([[60, 200, 410], [60, 250, 470], [110, 200, 330], [110, 300, 410], [160, 250, 330]])
        heights = 0.5 + torch.rand(count, 3, 1, generator=g)
        lines = (heights * torch.exp(-((at - peaks[self.mineral][:, :, None]) ** 2) / 50)).sum(dim=1)
        ground = torch.rand(count, 1, generator=g) * torch.cos(math.pi * at / LINES)
        raw = 400 + 900 * (lines + 0.5 * ground) + 60 * torch.randn(count, LINES, generator=g)
        self.signal = (raw - raw.mean(dim=1, keepdim=True)) / raw.std(dim=1, keepdim=True)

    def __len__(self) -> int:
        return len(self.mineral)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        signal = self.signal[index]
        if self.noise:
            signal = signal + self.noise * torch.randn(LINES)
        return signal, self.mineral[index]


class Layer(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.GroupNorm(2, channels)
        self.gain = nn.Parameter(torch.full((channels, 1), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * Gate.apply(self.norm(self.conv(x)))


class SpectrumNet(nn.Module):
    def __init__(self, channels: int, depth: int, dropout: float = 0.1) -> None:
        super().__init__()
        place = torch.arange(LINES) / LINES
        waves = torch.stack([torch.sin(2 * math.pi * 4 * place), torch.cos(2 * math.pi * 4 * place), 2 * place - 1])
        self.register_buffer("waves", waves)
        self.enter = nn.Conv1d(4, channels, 7, stride=2, padding=3)
        self.layers = nn.ModuleList([Layer(channels, 2**i) for i in range(depth)])
        self.drop = nn.Dropout(dropout)
        self.mineral = nn.Linear(channels * 16, MINERALS)

    def forward(self, signal: Tensor) -> Tensor:
        x = torch.cat([signal[:, None], self.waves.expand(len(signal), -1, -1)], dim=1)
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        x = F.adaptive_max_pool1d(x, 16).flatten(1)
        return self.mineral(self.drop(x))


def mineral_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    signal, mineral = batch
    return F.cross_entropy(model(signal), mineral)


def build(channels: int, depth: int) -> SpectrumNet:
    net = SpectrumNet(channels, depth)
    nn.init.normal_(net.mineral.weight, std=0.02)
    nn.init.zeros_(net.mineral.bias)
    return net


def spectra(channels: int = 12, depth: int = 3, lr: float = 3e-3) -> Recipe:
    return Recipe(
        model=lambda: build(channels, depth),
        data=lambda: Spectra(320, seed=21, noise=0.1),
        evaluation=lambda: Spectra(60, seed=22),
        loss=mineral_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01),
        schedule=lambda step, steps: min(1.0, (step + 1) / 5),
        micro_batch_size=16,
        max_steps=40,
        max_grad_norm=5.0,
        evaluate_every=20,
    )
