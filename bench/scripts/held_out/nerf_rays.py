"""Trains a radiance field from rays of a made-up scene, with coarse and fine samples along each ray.

Needs numpy.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
np.random.seed(0)
torch.manual_seed(0)


class Embedder:
    def __init__(self, freqs):
        self.bands = 2.0 ** torch.linspace(0.0, freqs - 1, freqs)
        self.out_dim = 3 + 6 * freqs

    def __call__(self, x):
        parts = [x]
        for f in self.bands:
            parts += [torch.sin(x * f), torch.cos(x * f)]
        return torch.cat(parts, -1)


class NeRF(nn.Module):
    def __init__(self, D=6, W=128, skip=3):
        super().__init__()
        self.xyz, self.dirs, self.skip = Embedder(8), Embedder(3), skip
        widths = [self.xyz.out_dim] + [W + (self.xyz.out_dim if i == skip else 0) for i in range(1, D)]
        self.pts = nn.ModuleList(nn.Linear(w, W) for w in widths)
        self.alpha, self.feature = nn.Linear(W, 1), nn.Linear(W, W)
        self.view, self.rgb = nn.Linear(W + self.dirs.out_dim, W // 2), nn.Linear(W // 2, 3)

    def forward(self, points, directions):
        e = self.xyz(points)
        h = e
        for i, layer in enumerate(self.pts):
            if i == self.skip:
                h = torch.cat([e, h], -1)
            h = F.relu(layer(h))
        alpha = self.alpha(h)
        h = torch.cat([self.feature(h), self.dirs(directions).expand(*h.shape[:-1], -1)], -1)
        return torch.cat([self.rgb(F.relu(self.view(h))), alpha], -1)


def raw2outputs(raw, z, rays_d):
    dists = torch.cat([z[..., 1:] - z[..., :-1], torch.full_like(z[..., :1], 1e10)], -1)
    dists = dists * torch.norm(rays_d[..., None, :], dim=-1)
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)
    transmitted = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * transmitted
    return (weights[..., None] * torch.sigmoid(raw[..., :3])).sum(-2), weights


def sample_pdf(bins, weights, n):
    pdf = (weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True)
    cdf = torch.cat([torch.zeros_like(pdf[..., :1]), torch.cumsum(pdf, -1)], -1)
    u = torch.rand([*cdf.shape[:-1], n], device=bins.device)
    inds = torch.searchsorted(cdf, u.contiguous(), right=True)
    below, above = (inds - 1).clamp(min=0), inds.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = torch.gather(cdf, 1, below), torch.gather(cdf, 1, above)
    b0, b1 = torch.gather(bins, 1, below), torch.gather(bins, 1, above)
    denom = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    return b0 + (u - c0) / denom * (b1 - b0)


def render(rays_o, rays_d, coarse, fine, n_coarse=32, n_fine=32, near=2.0, far=6.0):
    directions = rays_d / rays_d.norm(dim=-1, keepdim=True)
    t = torch.linspace(0.0, 1.0, n_coarse, device=rays_o.device)
    z = (near * (1 - t) + far * t).expand(len(rays_o), n_coarse)
    z = z + torch.rand_like(z) * (far - near) / n_coarse
    points = rays_o[:, None] + rays_d[:, None] * z[..., None]
    rgb0, weights = raw2outputs(coarse(points, directions[:, None]), z, rays_d)
    extra = sample_pdf(0.5 * (z[:, 1:] + z[:, :-1]), weights[:, 1:-1], n_fine).detach()
    z, _ = torch.sort(torch.cat([z, extra], -1), -1)
    points = rays_o[:, None] + rays_d[:, None] * z[..., None]
    rgb, _ = raw2outputs(fine(points, directions[:, None]), z, rays_d)
    return rgb, rgb0


origins = np.random.randn(4000, 3).astype(np.float32)
origins = 4 * origins / np.linalg.norm(origins, axis=1, keepdims=True)
aims = 0.7 * np.random.randn(4000, 3).astype(np.float32)
towards = aims - origins
towards /= np.linalg.norm(towards, axis=1, keepdims=True)
miss = np.linalg.norm(np.cross(origins, towards), axis=1)
colours = np.where(miss[:, None] < 1, 0.5 + 0.5 * np.sign(aims), 1.0).astype(np.float32)

coarse, fine = NeRF().to(device), NeRF().to(device)
optimizer = torch.optim.Adam(params=[*coarse.parameters(), *fine.parameters()], lr=5e-4, betas=(0.9, 0.999))
N_rand = 128
for i in range(6):
    select = np.random.choice(len(origins), size=[N_rand], replace=False)
    rays_o, rays_d, target = (torch.Tensor(a[select]).to(device) for a in (origins, towards, colours))
    rgb, rgb0 = render(rays_o, rays_d, coarse, fine)
    optimizer.zero_grad()
    img_loss = torch.mean((rgb - target) ** 2)
    loss = img_loss + torch.mean((rgb0 - target) ** 2)
    loss.backward()
    optimizer.step()
    psnr = -10.0 * torch.log(img_loss) / torch.log(torch.Tensor([10.0]).to(device))
    for param_group in optimizer.param_groups:
        param_group["lr"] = 5e-4 * (0.1 ** (i / 250_000))
    print(f"[TRAIN] Iter: {i} Loss: {loss.item():.4f} PSNR: {psnr.item():.2f}")
