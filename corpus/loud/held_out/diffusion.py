import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from surefoot import Recipe

# memory limit: 6MiB

STEPS = 100
ALPHAS = torch.linspace(0.99, 0.01, STEPS)


class Stripes(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        rows = torch.arange(16.0).view(16, 1)
        columns = torch.arange(16.0).view(1, 16)
        return torch.sin(rows * (index % 5) + columns * (index % 7)).unsqueeze(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x, when):
        inside = self.first(F.silu(self.norm(x)))
        inside = inside + when[:, :, None, None]
        return x + self.second(F.silu(inside))


class PixelAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)

    def forward(self, x):
        small = F.avg_pool2d(x, 2)
        batch, width, rows, columns = small.shape
        q, k, v = self.qkv(self.norm(small)).flatten(2).chunk(3, dim=1)
        weights = torch.softmax(q.transpose(1, 2) @ k / width**0.5, dim=-1)
        mixed = (v @ weights.transpose(1, 2)).view(batch, width, rows, columns)
        return x + F.interpolate(mixed, size=x.shape[2:])


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.into = nn.Conv2d(1, width, 3, padding=1)
        self.down = Block(width)
        self.attention = PixelAttention(width)
        self.up = Block(width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, noisy, steps):
        when = self.time(steps)
        x = self.down(self.into(noisy), when)
        x = self.up(self.attention(x), when)
        return self.out(x)


def noise_loss(model, pictures):
    steps = torch.randint(0, STEPS, (len(pictures),))
    noise = torch.randn_like(pictures)
    keep = ALPHAS[steps].view(-1, 1, 1, 1)
    noisy = keep.sqrt() * pictures + (1 - keep).sqrt() * noise
    return F.mse_loss(model(noisy, steps), noise)


def diffusion(width: int = 16, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: Denoiser(width),
        data=lambda: Stripes(),
        loss=noise_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=8,
        max_steps=4,
    )
