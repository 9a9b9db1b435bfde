"""DDPM-style diffusion on 8x8 tiles: two families of smooth patterns, noise prediction, EMA weights for sampling."""
import argparse
import copy
import math

import torch
from torch import nn


def make_tiles(n, seed):
    """Tiles in [-1, 1]: half are diagonal waves, half are a bright corner."""
    gen = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 3, generator=gen)
    axis = torch.linspace(0, 1, 8)
    yy, xx = axis[None, :, None], axis[None, None, :]
    phase = (0.7 * u[:, 0])[:, None, None]
    waves = torch.sin(2 * math.pi * (yy + xx + phase))
    corner = 1.8 * torch.exp(-4 * (yy ** 2 + xx ** 2) / (0.4 + u[:, 1])[:, None, None]) - 0.9
    pick = (u[:, 2] < 0.5)[:, None, None]
    tiles = torch.where(pick, waves, corner) + 0.03 * torch.randn(n, 8, 8, generator=gen)
    return tiles.clamp(-1, 1).unsqueeze(1)


class Diffusion:
    def __init__(self, timesteps):
        self.timesteps = timesteps
        self.betas = torch.linspace(1e-3, 0.2, timesteps)
        self.alphas = 1.0 - self.betas
        self.alpha_bars = torch.cumprod(self.alphas, dim=0)

    def add_noise(self, x0, t, noise):
        a = self.alpha_bars[t].view(-1, 1, 1, 1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def loss(self, model, x0, generator=None):
        t = torch.randint(0, self.timesteps, (len(x0),), generator=generator)
        noise = torch.randn(x0.shape, generator=generator)
        predicted = model(self.add_noise(x0, t, noise), t)
        return (predicted - noise).pow(2).mean()

    @torch.no_grad()
    def sample(self, model, n):
        x = torch.randn(n, 1, 8, 8)
        for step in reversed(range(self.timesteps)):
            t = torch.full((n,), step)
            eps = model(x, t)
            beta, alpha, bar = self.betas[step], self.alphas[step], self.alpha_bars[step]
            x = (x - beta / (1 - bar).sqrt() * eps) / alpha.sqrt()
            if step > 0:
                x = x + beta.sqrt() * torch.randn_like(x)
        return x


class ResBlock(nn.Module):
    def __init__(self, channels, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.film = nn.Linear(emb, 2 * channels)
        self.act = nn.SiLU()

    def forward(self, x, emb):
        scale, shift = self.film(emb)[:, :, None, None].chunk(2, dim=1)
        h = self.conv1(self.act(self.norm1(x)))
        h = self.norm2(h) * (1 + scale) + shift
        return x + self.conv2(self.act(h))


class Denoiser(nn.Module):
    def __init__(self, channels, timesteps, emb=32):
        super().__init__()
        self.timesteps = timesteps
        self.register_buffer("freqs", math.pi * 1.6 ** torch.arange(emb // 4))
        self.time = nn.Sequential(nn.Linear(emb // 2, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())
        self.inp = nn.Conv2d(2, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, channels, 3, 2, 1)
        self.mid = nn.ModuleList([ResBlock(channels, emb), ResBlock(channels, emb)])
        self.up = nn.Upsample(scale_factor=2)
        self.top = ResBlock(channels, emb)
        self.out = nn.Conv2d(channels, 1, 3, padding=1)

    def embed(self, t):
        angle = (t / self.timesteps)[:, None] * self.freqs
        return self.time(torch.cat([angle.sin(), angle.cos()], dim=1))

    def forward(self, x, t):
        emb = self.embed(t)
        ramp = torch.linspace(-1, 1, x.shape[-1]).expand_as(x)
        first = self.inp(torch.cat([x, ramp], dim=1))
        h = self.down(first)
        for block in self.mid:
            h = block(h, emb)
        return self.out(self.top(first + self.up(h), emb))


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for shadow, value in zip(self.model.parameters(), model.parameters()):
            shadow.mul_(self.decay).add_(value, alpha=1 - self.decay)


def sample_gap(samples, reference):
    """How far the samples are from the data: distance of means and of covariances of the pixels."""
    a, b = samples.flatten(1), reference.flatten(1)
    return ((a.mean(0) - b.mean(0)).norm() + (torch.cov(a.T) - torch.cov(b.T)).norm()).item()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--timesteps", type=int, default=50)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--ema", type=float, default=0.95)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(31)
    train_x, held_out = make_tiles(2048, seed=1), make_tiles(384, seed=2)
    diffusion = Diffusion(args.timesteps)
    model = Denoiser(args.channels, args.timesteps)
    ema = EMA(model, args.ema)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.updates)
    running = 1.0
    for update in range(1, args.updates + 1):
        batch = train_x[torch.randint(0, len(train_x), (args.batch_size,))]
        loss = diffusion.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        ema.update(model)
        running = 0.9 * running + 0.1 * loss.item()
        if update % 50 == 0:
            print(f"update {update} loss {running:.4f}")
    with torch.no_grad():
        test_loss = diffusion.loss(ema.model, held_out, torch.Generator().manual_seed(9)).item()
    gap = sample_gap(diffusion.sample(ema.model, 128), held_out)
    print(f"final train loss {running:.4f}, held-out loss {test_loss:.4f}, sample gap {gap:.3f}")


if __name__ == "__main__":
    main()
