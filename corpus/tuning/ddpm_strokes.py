"""Pen strokes denoised: a diffusion model of points, levels of noise from a cosine, averaged weights to draw."""

import copy
import math

import torch
from torch import nn

LEVELS = 50


def strokes(count, seed):
    g = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(count, 1, generator=g)
    t = torch.linspace(0, 1, 8)
    points = torch.stack([torch.cos(angle + 3 * t), torch.sin(angle + 3 * t)], dim=-1)
    return points.flatten(1) + 0.02 * torch.randn(count, 16, generator=g)


class Denoiser(nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        self.enter = nn.Linear(16, width)
        self.level = nn.Embedding(LEVELS, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.leave = nn.Linear(width, 16)
        angle = torch.arange(1, LEVELS + 1) / (LEVELS + 1) * math.pi / 2
        self.register_buffer("signal", torch.cos(angle))
        self.register_buffer("noise", torch.sin(angle))

    def forward(self, noisy, level):
        h = self.enter(noisy) + self.level(level)
        for layer in self.hidden:
            h = h + torch.nn.functional.silu(layer(h))
        return self.leave(h)

    def corrupt(self, clean, level, noise):
        return self.signal[level][:, None] * clean + self.noise[level][:, None] * noise


@torch.no_grad()
def draw(model, count):
    x = torch.randn(count, 16)
    for number in reversed(range(LEVELS)):
        level = torch.full((count,), number)
        noise = model(x, level)
        clean = (x - model.noise[number] * noise) / model.signal[number]
        x = clean if number == 0 else model.corrupt(clean, level - 1, noise)
    return x


def main():
    torch.manual_seed(61)
    data = strokes(512, seed=1)
    model = Denoiser()
    slow = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for step in range(48):
        clean = data[torch.randint(len(data), (64,))]
        level = torch.randint(LEVELS, (64,))
        noise = torch.randn_like(clean)
        guess = model(model.corrupt(clean, level, noise), level)
        loss = nn.functional.mse_loss(guess, noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
    radius = draw(slow, 64).view(-1, 8, 2).norm(dim=-1).mean().item()
    print(f"loss {sum(losses[-10:]) / 10:.3f}, radius {radius:.2f}")
    torch.save({"model": model.state_dict(), "slow": slow.state_dict()}, "strokes.pt")


main()
