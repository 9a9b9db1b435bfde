"""A vision transformer as a recipe."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(n, t, c)
        x = x + self.dropout(self.project(mixed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * 16, width)
        self.position = nn.Parameter(torch.randn(1, 9, width) * 0.02)
        self.layers = nn.ModuleList([Layer(width, heads, 0.1) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        cut = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5)
        x = self.patches(cut.reshape(len(images), 9, -1)) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


def images(samples: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 5, (samples,), generator=generator)
    return TensorDataset(kinds[labels] + 0.5 * torch.randn(samples, 3, 12, 12, generator=generator), labels)


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    pixels, labels = batch
    logits = model(pixels)
    return F.cross_entropy(logits, labels, reduction="sum"), len(labels)


def vit(width: int = 32, layers: int = 2, heads: int = 4, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: ViT(width, layers, heads, classes=5),
        data=lambda: images(320, seed=1),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.05),
        micro_batch_size=16,
        global_batch_tokens=32,
        max_grad_norm=1.0,
        max_steps=60,
    )
