"""Offices of postmarks, read by a small ViT: a stream shared out to workers, dict batches, bfloat16, accumulation."""

import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

OFFICES = 4


class Postmarks(IterableDataset):
    """Postmarks in an order that is new in every epoch; each worker yields every n-th of them."""

    def __init__(self, count, seed, shuffled):
        rng = np.random.default_rng(seed)
        self.seed, self.shuffled, self.epoch = seed, shuffled, 0
        self.office = rng.integers(0, OFFICES, count)
        down, across = np.mgrid[-1:1:16j, -1:1:16j]
        ring = np.abs(np.hypot(down, across) - 0.75) < 0.12
        bars = np.stack(
            [np.abs(down) < 0.2, np.abs(across) < 0.2, np.abs(down - across) < 0.25, np.hypot(down, across) < 0.4]
        )
        ink = 170 * (ring | bars[self.office]) + rng.normal(45, 25, (count, 16, 16))
        self.marks = ink.clip(0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.office)

    def __iter__(self):
        order = np.arange(len(self.office))
        if self.shuffled:
            np.random.default_rng((self.seed, self.epoch)).shuffle(order)
        worker = get_worker_info()
        if worker is not None:
            order = order[worker.id :: worker.num_workers]
        for index in order:
            image = torch.from_numpy(self.marks[index])[None].float() / 255
            yield {"image": (image - 0.4) / 0.33, "label": int(self.office[index])}


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class PostmarkViT(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2, patch=4, dropout=0.05):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (16 // patch) ** 2, dim))
        self.layers = nn.ModuleList([EncoderLayer(dim, heads, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, OFFICES)

    def patches(self, images):
        n, p = images.shape[0], self.patch
        grid = images.view(n, 16 // p, p, 16 // p, p).permute(0, 1, 3, 2, 4)
        return grid.reshape(n, -1, p * p)

    def forward(self, batch):
        x = self.embed(self.patches(batch["image"]))
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 0]))


def windows(loader, size):
    """Lists of micro-batches; the last one of an epoch may be shorter."""
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def evaluate(model, loader):
    model.eval()
    nats, right, seen = 0.0, 0, 0
    with torch.inference_mode():
        for batch in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(batch)
            nats += F.cross_entropy(logits.float(), batch["label"], reduction="sum").item()
            right += (logits.argmax(-1) == batch["label"]).sum().item()
            seen += len(batch["label"])
    return nats / seen, right / seen


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--micro-batch", type=int, default=10)
    parser.add_argument("--accumulate", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)

    torch.manual_seed(12)
    train_set, test_set = Postmarks(200, seed=1, shuffled=True), Postmarks(52, seed=2, shuffled=False)
    train_loader = DataLoader(train_set, batch_size=args.micro_batch, num_workers=args.workers)
    test_loader = DataLoader(test_set, batch_size=16)
    model = PostmarkViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    updates = args.epochs * math.ceil(len(train_loader) / args.accumulate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates, eta_min=args.lr / 50)

    for epoch in range(args.epochs):
        train_set.epoch = epoch
        model.train()
        for window in windows(train_loader, args.accumulate):
            images = sum(len(batch["label"]) for batch in window)
            optimizer.zero_grad()
            for batch in window:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    logits = model(batch)
                loss = F.cross_entropy(logits.float(), batch["label"], reduction="sum") / images
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        nats, right = evaluate(model, test_loader)
        print(f"epoch {epoch}: test loss {nats:.3f}, {100 * right:.0f}% right")
    torch.save(model.state_dict(), "postmarks.pt")


if __name__ == "__main__":
    main()
