"""Denoising diffusion on little glyphs: a convolutional denoiser told the time, averaged weights, a few samples."""

import copy
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TIMES, SIDE = 1000, 8
BATCH, PARTS, UPDATES = 32, 2, 60


def glyphs(count, seed):
    """Strokes in bytes: a row, a column or a diagonal, of changing thickness."""
    g = torch.Generator().manual_seed(seed)
    shape = torch.randint(3, (count,), generator=g)
    at = torch.randint(1, SIDE - 2, (count,), generator=g)
    pictures = torch.zeros(count, 1, SIDE, SIDE)
    for i in range(count):
        if shape[i] == 0:
            pictures[i, 0, at[i] : at[i] + 2] = 255
        elif shape[i] == 1:
            pictures[i, 0, :, at[i] : at[i] + 2] = 255
        else:
            pictures[i, 0] = 255 * torch.eye(SIDE).roll(int(at[i]), 0)
    noise = torch.randint(0, 40, pictures.shape, generator=g)
    return (pictures - noise).clamp(0, 255).to(torch.uint8)


def scaled(pictures):
    return pictures.float() / 127.5 - 1


class Clock(nn.Module):
    def __init__(self, width):
        super().__init__()
        rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2) / (width // 2))
        self.register_buffer("rates", rates)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        angles = t.float()[:, None] * self.rates
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=1))


class Layer(nn.Module):
    def __init__(self, before, after, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, before)
        self.conv = nn.Conv2d(before, after, 3, padding=1)
        self.shift = nn.Linear(width, before)
        self.drop = nn.Dropout(0.1)

    def forward(self, h, clock):
        h = h + self.shift(clock)[:, :, None, None]
        return self.conv(self.drop(F.silu(self.norm(h))))


class Denoiser(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.clock = Clock(width)
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = Layer(width, 2 * width, width)
        self.middle = Layer(2 * width, 2 * width, width)
        self.up = Layer(2 * width, width, width)
        self.leave = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x, t):
        clock = self.clock(t)
        first = self.enter(x)
        h = F.avg_pool2d(self.down(first, clock), 2)
        h = h + self.middle(h, clock)
        h = F.interpolate(self.up(h, clock), scale_factor=2)
        return self.leave(torch.cat([first, h], dim=1))


class Noise:
    """How much of the picture is left at each time."""

    def __init__(self):
        self.kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES), dim=0)

    def mix(self, x, noise, t):
        kept = self.kept[t][:, None, None, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise

    def undo(self, mixed, noise, t):
        kept = self.kept[t][:, None, None, None]
        return (mixed - (1 - kept).sqrt() * noise) / kept.sqrt().clamp(min=0.2)


def loss_of(model, process, x):
    t = torch.randint(TIMES, (len(x),))
    noise = torch.randn_like(x)
    mixed = process.mix(x, noise, t)
    guess = model(mixed, t)
    picture = process.undo(mixed, guess, t)
    return F.mse_loss(guess, noise) + 0.1 * F.l1_loss(picture, x)


def follow(slow, fast, decay=0.95):
    with torch.no_grad():
        for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
            a.lerp_(b, 1 - decay)


@torch.no_grad()
def sample(model, process, count):
    x = torch.randn(count, 1, SIDE, SIDE)
    times = list(range(TIMES - 1, -1, -100))
    for now, then in itertools.zip_longest(times, times[1:], fillvalue=0):
        t = torch.full((count,), now)
        noise = model(x, t)
        x = process.mix(process.undo(x, noise, t).clamp(-1, 1), noise, torch.full((count,), then))
    return x


torch.manual_seed(90)
train, held = glyphs(512, seed=1), glyphs(64, seed=2)
process = Noise()
model = Denoiser()
average = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for update in range(1, UPDATES + 1):
    optimizer.zero_grad()
    seen = 0.0
    for part in torch.randint(len(train), (PARTS, BATCH // PARTS)):
        loss = loss_of(model, process, scaled(train[part])) / PARTS
        loss.backward()
        seen += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    follow(average, model)
    if update % 20 == 0:
        with torch.no_grad():
            checked = sum(loss_of(average, process, scaled(held[i : i + 16])).item() for i in range(0, 64, 16)) / 4
        print(f"update {update}: loss {seen:.3f}, held out with averaged weights {checked:.3f}")
print("spread of samples", sample(average, process, 8).std().item())
torch.save({"model": model.state_dict(), "average": average.state_dict()}, "glyphs.pt")
