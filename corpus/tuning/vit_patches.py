"""A small vision transformer with augmentation, warm-up by LambdaLR and label smoothing off."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(21)
CLASSES, SIZE, PATCH, DIM = 5, 16, 4, 32


class Pictures(Dataset):
    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        prototypes = np.random.default_rng(0).normal(size=(CLASSES, 3, SIZE, SIZE))
        self.labels = rng.integers(0, CLASSES, n)
        self.images = (prototypes[self.labels] + 0.5 * rng.normal(size=(n, 3, SIZE, SIZE))).astype(np.float32)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i])
        if self.augment:
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            image = image + 0.05 * torch.randn(image.shape)
        return image, int(self.labels[i])


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=p, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(p), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, depth=2, heads=4, p=0.1):
        super().__init__()
        patches = (SIZE // PATCH) ** 2
        self.to_patch = nn.Conv2d(3, DIM, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, DIM))
        self.pos = nn.Parameter(torch.randn(1, patches + 1, DIM) * 0.02)
        self.blocks = nn.ModuleList([EncoderBlock(DIM, heads, p) for _ in range(depth)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, images):
        x = self.to_patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def main():
    epochs, warmup = 3, 4
    train_loader = DataLoader(Pictures(160, 1, augment=True), batch_size=16, shuffle=True, drop_last=True)
    val_loader = DataLoader(Pictures(40, 2, augment=False), batch_size=20)
    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    total = epochs * len(train_loader)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for epoch in range(epochs):
        model.train()
        for images, labels in train_loader:
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
        accuracy = validate(model, val_loader)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f} accuracy {accuracy:.3f}")


@torch.inference_mode()
def validate(model, loader):
    model.eval()
    hits = total = 0
    for images, labels in loader:
        hits += (model(images).argmax(-1) == labels).sum().item()
        total += len(labels)
    return hits / total


if __name__ == "__main__":
    main()
