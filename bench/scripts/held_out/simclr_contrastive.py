"""Trains image features without labels: two augmented views, a projection head and the NT-Xent loss."""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Config:
    batch_size = 64
    temperature = 0.2
    epochs = 2
    lr = 0.3
    weight_decay = 1e-4
    feature_dim = 128
    image = 40
    seed = 42
    accumulate = 1


def augment(x):
    """Crop, flip, colour and grey, each picture on its own, on the device."""
    b, _, h, w = x.shape
    scale = torch.empty(b, device=x.device).uniform_(0.5, 1.0)
    shift = (torch.rand(b, 2, device=x.device) * 2 - 1) * (1 - scale)[:, None]
    flip = torch.where(torch.rand(b, device=x.device) < 0.5, -1.0, 1.0)
    theta = torch.zeros(b, 2, 3, device=x.device)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale * flip, scale, shift
    x = F.grid_sample(x, F.affine_grid(theta, [b, 3, h, w], align_corners=False), align_corners=False)
    gain = 1 + 0.4 * (torch.rand(b, 3, 1, 1, device=x.device) * 2 - 1)
    x = x * gain
    grey = x.mean(1, keepdim=True).expand_as(x)
    return torch.where(torch.rand(b, 1, 1, 1, device=x.device) < 0.2, grey, x)


class Encoder(nn.Module):
    def __init__(self, out):
        super().__init__()
        channels = [3, 32, 64, 128]
        stages = []
        for i, o in itertools.pairwise(channels):
            stages += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
        self.f = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.g = nn.Sequential(
            nn.Linear(128, 512, bias=False), nn.BatchNorm1d(512), nn.ReLU(inplace=True), nn.Linear(512, out)
        )

    def forward(self, x):
        h = self.f(x)
        return F.normalize(h, dim=-1), F.normalize(self.g(h), dim=-1)


def nt_xent(z1, z2, temperature):
    n = z1.size(0)
    z = torch.cat([z1, z2], dim=0)
    sim = z @ z.t() / temperature
    mask = torch.eye(2 * n, dtype=torch.bool, device=z.device)
    sim = sim.masked_fill(mask, float("-inf"))
    positives = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(sim, positives)


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay=0, momentum=0.9, eta=0.001):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "eta": eta})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if dp is None:
                    continue
                if p.ndim > 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    pn, un = torch.norm(p), torch.norm(dp)
                    one = torch.ones_like(pn)
                    q = torch.where(pn > 0.0, torch.where(un > 0, g["eta"] * pn / un, one), one)
                    dp = dp.mul(q)
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                mu = state["mu"]
                mu.mul_(g["momentum"]).add_(dp)
                p.add_(mu, alpha=-g["lr"])


def main(cfg):
    torch.manual_seed(cfg.seed)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    images = torch.rand(320, 3, cfg.image, cfg.image)
    loader = DataLoader(TensorDataset(images), cfg.batch_size, shuffle=True, drop_last=True)
    model = Encoder(cfg.feature_dim).to(device)
    optimizer = LARS(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    steps = cfg.epochs * len(loader)
    step = 0
    for epoch in range(cfg.epochs):
        for (x,) in loader:
            for group in optimizer.param_groups:
                group["lr"] = cfg.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
            x = x.to(device)
            _, z1 = model(augment(x))
            _, z2 = model(augment(x))
            loss = nt_xent(z1, z2, cfg.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"epoch {epoch} step {step}/{steps} lr {optimizer.param_groups[0]['lr']:.3f} loss {loss:.4f}")


if __name__ == "__main__":
    main(Config())
