"""Points on a coil, made from noise: a network learns which noise was added, at steps drawn anew for each point."""

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Settings:
    steps: int = 60
    width: int = 64
    batch: int = 128
    epochs: int = 10
    lr: float = 4e-3
    decay: float = 0.9
    seed: int = 43


def coil(count: int, generator: torch.Generator) -> Tensor:
    turn = 0.5 + 2.5 * torch.rand(count, generator=generator)
    angle = 2 * math.pi * turn / 1.5
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1)
    return points / 1.6 + 0.03 * torch.randn(count, 2, generator=generator)


def linear_betas(steps: int) -> Tensor:
    return torch.linspace(1e-3, 0.15, steps)


class Denoiser(nn.Module):
    def __init__(self, steps: int, width: int) -> None:
        super().__init__()
        betas = linear_betas(steps)
        self.register_buffer("betas", betas)
        self.register_buffer("kept", torch.cumprod(1 - betas, dim=0))
        self.when = nn.Embedding(steps, width)
        self.enter = nn.Linear(2, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.leave = nn.Linear(width, 2)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.leave(self.body(self.enter(x) + self.when(t)))

    def noised(self, x: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        kept = self.kept[t][:, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise


def noise_loss(model: Denoiser, x: Tensor) -> Tensor:
    t = torch.randint(len(model.betas), (len(x),))
    noise = torch.randn_like(x)
    guess = model(model.noised(x, t, noise), t)
    return F.mse_loss(guess, noise)


@torch.no_grad()
def held_loss(model: Denoiser, x: Tensor) -> float:
    """The same steps and the same noise at every evaluation, so that epochs can be compared."""
    model.eval()
    generator = torch.Generator().manual_seed(0)
    t = torch.randint(len(model.betas), (len(x),), generator=generator)
    noise = torch.randn(x.shape, generator=generator)
    return F.mse_loss(model(model.noised(x, t, noise), t), noise).item()


@torch.no_grad()
def sample(model: Denoiser, count: int) -> Tensor:
    model.eval()
    x = torch.randn(count, 2)
    for step in reversed(range(len(model.betas))):
        beta, kept = model.betas[step], model.kept[step]
        guess = model(x, torch.full((count,), step))
        x = (x - beta / (1 - kept).sqrt() * guess) / (1 - beta).sqrt()
        if step:
            x = x + beta.sqrt() * torch.randn_like(x)
    return x


def main() -> None:
    settings = Settings()
    torch.manual_seed(settings.seed)
    generator = torch.Generator().manual_seed(settings.seed + 1)
    train, held = coil(1280, generator), coil(256, generator)
    model = Denoiser(settings.steps, settings.width)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0)
    total_steps = settings.epochs * math.ceil(len(train) / settings.batch)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps, eta_min=1e-4)
    for epoch in range(settings.epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(train)).split(settings.batch):
            loss = noise_loss(model, train[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 1 - settings.decay)
            total += loss.item() * len(rows)
        print(f"epoch {epoch} loss {total / len(train):.3f} held loss {held_loss(model, held):.3f}")
    made = sample(average, 200)
    print(f"distance of what is made to the coil {torch.cdist(made, held).min(dim=1).values.mean().item():.3f}")
    torch.save({"model": model.state_dict(), "average": average.state_dict()}, "coil.pt")


if __name__ == "__main__":
    main()
