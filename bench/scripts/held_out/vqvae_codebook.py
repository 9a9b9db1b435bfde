"""Trains a VQ-VAE whose codebook is a buffer updated by moving averages, with a straight-through gradient."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)


class VectorQuantizerEMA(nn.Module):
    def __init__(self, codes, dim, decay=0.99, commitment=0.25):
        super().__init__()
        self.codes, self.decay, self.commitment = codes, decay, commitment
        self.register_buffer("embedding", torch.randn(codes, dim))
        self.register_buffer("cluster_size", torch.zeros(codes))
        self.register_buffer("embed_avg", self.embedding.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.size(1))
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embedding.t() + self.embedding.pow(2).sum(1)
        index = distance.argmin(1)
        quantized = F.embedding(index, self.embedding).view(z.size(0), z.size(2), z.size(3), -1).permute(0, 3, 1, 2)
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(index, self.codes).type(flat.dtype)
                self.cluster_size.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(hot.t() @ flat, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                size = (self.cluster_size + 1e-5) / (n + self.codes * 1e-5) * n
                self.embedding.copy_(self.embed_avg / size.unsqueeze(1))
        loss = self.commitment * F.mse_loss(z, quantized.detach())
        share = torch.bincount(index, minlength=self.codes).float() / index.numel()
        perplexity = torch.exp(-(share * torch.log(share + 1e-10)).sum())
        return z + (quantized - z).detach(), loss, perplexity


class Residual(nn.Sequential):
    def __init__(self, c):
        super().__init__(nn.ReLU(), nn.Conv2d(c, c // 2, 3, 1, 1, bias=False), nn.ReLU(), nn.Conv2d(c // 2, c, 1))

    def forward(self, x):
        return x + super().forward(x)


class VQVAE(nn.Module):
    def __init__(self, c=64, dim=32, codes=256):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, c // 2, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(c // 2, c, 4, 2, 1),
            Residual(c),
            Residual(c),
            nn.Conv2d(c, dim, 1),
        )
        self.vq = VectorQuantizerEMA(codes, dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, c, 3, 1, 1),
            Residual(c),
            Residual(c),
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2d(c, c // 2, 3, 1, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(c // 2, 3, 4, 2, 1),
        )

    def forward(self, x):
        quantized, loss, perplexity = self.vq(self.encoder(x))
        return self.decoder(quantized), loss, perplexity


def cycle(items, size):
    while True:
        yield from items[torch.randperm(len(items))].split(size)


device = "cuda" if torch.cuda.is_available() else "cpu"
model = VQVAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=False)
pictures = F.interpolate(torch.rand(64, 3, 12, 12), scale_factor=4, mode="bilinear", align_corners=False) - 0.5
variance = pictures.var().item()
errors, perplexities = [], []
model.train()
for i, x in zip(range(8), cycle(pictures, 16)):  # noqa: B905
    x = x.to(device)
    optimizer.zero_grad()
    out, vq_loss, perplexity = model(x)
    recon = F.mse_loss(out, x) / variance
    (recon + vq_loss).backward()
    optimizer.step()
    errors.append(recon.item())
    perplexities.append(perplexity.item())
    print(f"{i + 1} iterations: recon {sum(errors) / len(errors):.3f} perplexity {perplexities[-1]:.2f}")
