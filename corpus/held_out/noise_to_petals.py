"""A small diffusion model (DDPM): points of a flower with five petals are made out of noise, with averaged weights."""

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    steps: int = 40
    updates: int = 240
    batch: int = 256
    width: int = 64
    lr: float = 3e-3
    decay: float = 0.98


def petals(count: int, generator: torch.Generator) -> torch.Tensor:
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    radius = 0.4 + 1.1 * torch.cos(2.5 * angle).abs()
    points = radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + 0.03 * torch.randn(count, 2, generator=generator)


class Denoiser(nn.Module):
    """What noise is in a point, if it went so many steps?"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, -5, 8)))
        self.enter = nn.Linear(2 + 16, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.leave = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        angles = t[:, None].float() * self.frequencies
        return self.leave(self.body(self.enter(torch.cat([x, angles.sin(), angles.cos()], dim=1))))


class Diffusion:
    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.betas = torch.linspace(1e-3, 0.25, steps)
        self.alphas = 1 - self.betas
        self.kept = self.alphas.cumprod(dim=0)

    def loss(self, model: nn.Module, x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        t = torch.randint(self.steps, (len(x),), generator=generator)
        noise = torch.randn(x.shape, generator=generator)
        kept = self.kept[t][:, None]
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        return F.mse_loss(model(noisy, t), noise)

    @torch.no_grad()
    def sample(self, model: nn.Module, count: int, generator: torch.Generator) -> torch.Tensor:
        x = torch.randn(count, 2, generator=generator)
        for t in reversed(range(self.steps)):
            guess = model(x, torch.full((count,), t))
            x = (x - self.betas[t] / (1 - self.kept[t]).sqrt() * guess) / self.alphas[t].sqrt()
            if t > 0:
                x = x + self.betas[t].sqrt() * torch.randn(count, 2, generator=generator)
        return x


def main(config: Config) -> None:
    torch.manual_seed(17)
    data = torch.Generator().manual_seed(1)
    held_out = petals(1024, torch.Generator().manual_seed(2))
    model, diffusion = Denoiser(config.width), Diffusion(config.steps)
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=config.updates, eta_min=1e-5)
    running = 0.0
    for update in range(1, config.updates + 1):
        loss = diffusion.loss(model, petals(config.batch, data))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 1 - config.decay)
        running += loss.item()
        if update % 60 == 0:
            with torch.no_grad():
                held = diffusion.loss(average, held_out, torch.Generator().manual_seed(3))
            made = diffusion.sample(average, 300, torch.Generator().manual_seed(4))
            apart = torch.cdist(made, held_out).amin(dim=1).mean()
            print(f"{update} loss {running / 60:.3f} held out {held.item():.3f} distance {apart.item():.3f}")
            running = 0.0


if __name__ == "__main__":
    main(Config())
