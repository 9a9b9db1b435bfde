"""Pretrains a masked autoencoder: most patches are shuffled away, a light decoder puts them back.

Needs tensorboard.
"""

import math
import os
import sys

import torch
import torch.nn as nn
from torch.utils.tensorboard import SummaryWriter

HAVE_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAVE_CUDA else "cpu"


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y)[0]
        return x + self.mlp(self.norm2(x))


class MaskedAutoencoder(nn.Module):
    def __init__(self, size=96, patch=8, dim=144, depth=4, heads=6, decoder=96, decoder_depth=2):
        super().__init__()
        self.patch, self.n = patch, (size // patch) ** 2
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, self.n + 1, dim) * 0.02, requires_grad=False)
        self.blocks = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.to_decoder = nn.Linear(dim, decoder)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder))
        self.decoder_pos = nn.Parameter(torch.randn(1, self.n + 1, decoder) * 0.02, requires_grad=False)
        self.decoder_blocks = nn.ModuleList([Layer(decoder, 4) for _ in range(decoder_depth)])
        self.pred = nn.Linear(decoder, patch**2 * 3)

    def patchify(self, imgs):
        p, g = self.patch, imgs.shape[2] // self.patch
        x = imgs.reshape(imgs.shape[0], 3, g, p, g, p)
        return torch.einsum("nchpwq->nhwpqc", x).reshape(imgs.shape[0], g * g, p * p * 3)

    def random_masking(self, x, ratio):
        N, L, D = x.shape
        keep = int(L * (1 - ratio))
        noise = torch.rand(N, L, device=x.device)
        ids_shuffle = torch.argsort(noise, dim=1)
        ids_restore = torch.argsort(ids_shuffle, dim=1)
        x = torch.gather(x, 1, ids_shuffle[:, :keep].unsqueeze(-1).repeat(1, 1, D))
        mask = torch.ones([N, L], device=x.device)
        mask[:, :keep] = 0
        return x, torch.gather(mask, 1, ids_restore), ids_restore

    def forward(self, imgs, ratio=0.75):
        x = self.embed(imgs).flatten(2).transpose(1, 2) + self.pos[:, 1:]
        x, mask, ids_restore = self.random_masking(x, ratio)
        x = torch.cat([(self.cls + self.pos[:, :1]).expand(x.shape[0], -1, -1), x], dim=1)
        for blk in self.blocks:
            x = blk(x)
        x = self.to_decoder(self.norm(x))
        tokens = self.mask_token.repeat(x.shape[0], ids_restore.shape[1] + 1 - x.shape[1], 1)
        body = torch.cat([x[:, 1:], tokens], dim=1)
        body = torch.gather(body, 1, ids_restore.unsqueeze(-1).repeat(1, 1, x.shape[2]))
        x = torch.cat([x[:, :1], body], dim=1) + self.decoder_pos
        for blk in self.decoder_blocks:
            x = blk(x)
        pred = self.pred(x)[:, 1:]
        target = self.patchify(imgs)
        mean, var = target.mean(-1, keepdim=True), target.var(-1, keepdim=True)
        loss = ((pred - (target - mean) / (var + 1e-6) ** 0.5) ** 2).mean(dim=-1)
        return (loss * mask).sum() / mask.sum(), mask


def main():
    torch.manual_seed(0)
    accum_iter, batch, iters = 2, 12, 10
    model = MaskedAutoencoder().to(DEVICE)
    decay, rest = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            (rest if p.ndim <= 1 or name.endswith("bias") else decay).append(p)
    optimizer = torch.optim.AdamW(
        [{"params": rest, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.05}], lr=1e-3, betas=(0.9, 0.95)
    )
    scaler = torch.amp.GradScaler(DEVICE, enabled=HAVE_CUDA)
    writer = SummaryWriter(log_dir="mae_runs")
    optimizer.zero_grad()
    for it in range(iters):
        if it % accum_iter == 0:
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * 0.5 * (1.0 + math.cos(math.pi * it / iters))
        samples = torch.rand(batch, 3, 96, 96).to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE, enabled=HAVE_CUDA):
            loss, mask = model(samples)
        value = loss.item()
        if not math.isfinite(value):
            print(f"Loss is {value}, stopping training")
            sys.exit(1)
        scaler.scale(loss / accum_iter).backward()
        if (it + 1) % accum_iter == 0:
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            writer.add_scalar("train_loss", value, it)
            writer.add_scalar("grad_norm", norm, it)
            print(f"[{it}] loss {value:.4f} masked {mask.mean().item():.3f} norm {norm.item():.3f}")
        if HAVE_CUDA:
            torch.cuda.synchronize()
    writer.close()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "mae-last.pth")
    print(os.path.getsize("mae-last.pth") // 1024, "KiB")


if __name__ == "__main__":
    main()
