"""Trains a small diffusion transformer by flow matching, with an average of its weights and bfloat16 autocast."""

import argparse
import copy
import math
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TimestepEmbedder(nn.Module):
    def __init__(self, hidden, size=256):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(size, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.size = size

    def forward(self, t):
        half = self.size // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
        args = t[:, None].float() * 1000 * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


class DiTBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(approximate="tanh"), nn.Linear(4 * hidden, hidden)
        )
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))
        self.heads = heads
        nn.init.zeros_(self.ada[-1].weight)
        nn.init.zeros_(self.ada[-1].bias)

    def attention(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x, c):
        s1, c1, g1, s2, c2, g2 = self.ada(c).chunk(6, dim=1)
        x = x + g1.unsqueeze(1) * self.attention(modulate(self.norm1(x), s1, c1))
        return x + g2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), s2, c2))


class DiT(nn.Module):
    def __init__(self, size=32, patch=4, channels=4, hidden=192, depth=5, heads=6, classes=10):
        super().__init__()
        self.patch, self.channels, self.grid = patch, channels, size // patch
        self.x_embedder = nn.Conv2d(channels, hidden, patch, patch)
        self.t_embedder = TimestepEmbedder(hidden)
        self.y_embedder = nn.Embedding(classes + 1, hidden)
        self.pos_embed = nn.Parameter(torch.randn(1, self.grid**2, hidden) * 0.02, requires_grad=False)
        self.blocks = nn.ModuleList(DiTBlock(hidden, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)
        self.out = nn.Linear(hidden, patch * patch * channels)
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))

    def forward(self, x, t, y):
        x = self.x_embedder(x).flatten(2).transpose(1, 2) + self.pos_embed
        c = self.t_embedder(t) + self.y_embedder(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.ada(c).chunk(2, dim=1)
        x = self.out(modulate(self.norm(x), shift, scale))
        b, p, g = x.shape[0], self.patch, self.grid
        x = x.reshape(b, g, g, p, p, self.channels)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(b, self.channels, g * p, g * p)


@torch.no_grad()
def update_ema(ema_model, model, decay=0.999):
    ema_params = OrderedDict(ema_model.named_parameters())
    for name, param in OrderedDict(model.named_parameters()).items():
        ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def main(args):
    assert args.steps > 0
    torch.manual_seed(args.seed)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    model = DiT(hidden=args.hidden, depth=args.depth)
    ema = copy.deepcopy(model).to(device)
    requires_grad(ema, False)
    model = model.to(device)
    print(f"DiT Parameters: {sum(p.numel() for p in model.parameters()):,}")
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0)
    update_ema(ema, model, decay=0)
    model.train()
    ema.eval()
    latents, labels = torch.randn(64, 4, 32, 32), torch.randint(0, 10, (64,))
    for step in range(args.steps):
        rows = torch.randint(0, 64, (args.batch,))
        x, y = latents[rows].to(device), labels[rows].to(device)
        y = torch.where(torch.rand(y.shape, device=device) < 0.1, torch.full_like(y, 10), y)
        t = torch.sigmoid(torch.randn(x.shape[0], device=device))
        noise = torch.randn_like(x)
        mixed = (1 - t.view(-1, 1, 1, 1)) * x + t.view(-1, 1, 1, 1) * noise
        with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
            velocity = model(mixed, t, y)
        loss = F.mse_loss(velocity.float(), noise - x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        update_ema(ema, model)
        print(f"(step={step:07d}) Train Loss: {loss.item():.4f}")
    torch.save({"model": model.state_dict(), "ema": ema.state_dict(), "opt": opt.state_dict()}, "dit.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
