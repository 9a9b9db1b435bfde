"""Glyphs of an old alphabet told apart by a small vision transformer: patches, class token, stochastic depth."""

import argparse
import copy
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

SIDE, PATCH, CLASSES = 16, 4, 6


def draw(kind, rng):
    """One glyph in grey levels 0..255: strokes of some ink on paper that is not quite white."""
    page = rng.normal(30.0, 12.0, (SIDE, SIDE))
    top, left = rng.integers(1, 5, 2)
    ink, reach = rng.uniform(140, 220), 9
    run = np.arange(reach)
    if kind in (0, 2):  # bar, cross
        page[top + 4, left : left + reach] += ink
    if kind in (1, 2):  # pole, cross
        page[top : top + reach, left + 4] += ink
    if kind == 3:  # slash
        page[top + run, left + run] += ink
    if kind == 4:  # frame
        page[[top, top + reach - 1], left : left + reach] += ink
        page[top : top + reach, [left, left + reach - 1]] += ink
    if kind == 5:  # hook
        page[top + reach - 1, left : left + reach] += ink
        page[top : top + reach, left] += ink
    return page.clip(0, 255).astype(np.uint8)


def make_glyphs(count, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, CLASSES, count)
    return np.stack([draw(kind, rng) for kind in kinds]), kinds


class Glyphs(Dataset):
    def __init__(self, images, kinds, augment):
        self.images, self.kinds, self.augment = images, kinds, augment

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).float().div(255.0)
        image = (image - 0.2) / 0.25
        if self.augment:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = torch.roll(image, (down, right), dims=(0, 1))
            image = image + 0.1 * torch.randn(SIDE, SIDE)
        return image.unsqueeze(0), int(self.kinds[index])


class Attention(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.softmax(dim=-1)
        weights = F.dropout(weights, self.drop, training=self.training)
        mixed = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width, heads, drop, depth_drop):
        super().__init__()
        self.depth_drop = depth_drop
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, drop)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * width, width))

    def drop_path(self, x):
        if not self.training or self.depth_drop == 0.0:
            return x
        kept = (torch.rand(len(x), 1, 1) >= self.depth_drop).float()
        return x * kept / (1 - self.depth_drop)

    def forward(self, x):
        x = x + self.drop_path(self.attention(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class GlyphViT(nn.Module):
    def __init__(self, width=32, depth=3, heads=4, drop=0.1):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2 + 1, width))
        self.blocks = nn.ModuleList([Block(width, heads, drop, 0.1 * i / depth) for i in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, images):
        x = self.patches(images)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x[:, 0]))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = seen = 0
    for images, kinds in loader:
        right += (model(images).argmax(dim=1) == kinds).sum().item()
        seen += len(kinds)
    return right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    random.seed(11)
    np.random.seed(11)
    torch.manual_seed(11)
    images, kinds = make_glyphs(400, seed=1)
    train_set = Glyphs(images[:320], kinds[:320], augment=True)
    val_set = Glyphs(images[320:], kinds[320:], augment=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(val_set, batch_size=32)

    model = GlyphViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02)
    total = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=total, pct_start=0.2)
    best, best_state = -1.0, None
    for epoch in range(args.epochs):
        model.train()
        summed = 0.0
        for images, kinds in train_loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(images)
                loss = F.cross_entropy(logits.float(), kinds, label_smoothing=0.05)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            summed += loss.item() * len(kinds)
        accuracy = evaluate(model, val_loader)
        print(f"epoch {epoch + 1} loss {summed / len(train_set):.4f} accuracy {accuracy:.3f}")
        if accuracy > best:
            best, best_state = accuracy, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_state)
    torch.save({"model": best_state, "accuracy": best}, "glyphs.pt")
    print(f"best accuracy {best:.3f}, again {evaluate(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
