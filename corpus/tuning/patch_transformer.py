"""A vision transformer on little landscapes: class token, learned positions, ragged accumulation by counts."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset


class Landscapes(Dataset):
    KINDS = 4

    def __init__(self, count, side=12, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(self.KINDS, (count,), generator=gen)
        rows = torch.linspace(0, 3.0, side)[None, :, None]
        cols = torch.linspace(0, 3.0, side)[None, None, :]
        k = self.kind.view(-1, 1, 1)
        base = torch.sin((1 + k) * rows) + torch.cos((2 + k) * cols)
        base = base.unsqueeze(1).repeat(1, 3, 1, 1)
        self.pixels = (base + 0.4 * torch.randn(count, 3, side, side, generator=gen)) * 40 + 120
        self.pixels = self.pixels.clamp(0, 255).byte()

    def __len__(self):
        return self.kind.numel()

    def __getitem__(self, item):
        return {"pixels": self.pixels[item].float().sub(127.5).div(60.0), "kind": self.kind[item]}


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.to_qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, D = x.shape
        qkv = self.to_qkv(x).reshape(B, N, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.mT) * (D // self.h) ** -0.5
        attn = attn.softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, drop):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        x = x + self.drop(self.attn(self.n1(x)))
        hidden = F.gelu(self.fc1(self.n2(x)))
        return x + self.drop(self.fc2(hidden))


class ViT(nn.Module):
    def __init__(self, side=12, patch=4, dim=32, heads=4, depth=2, kinds=4):
        super().__init__()
        self.patchify = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(dim, heads, 0.1) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, kinds)

    def forward(self, pixels):
        patches = self.patchify(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(patches), -1, -1), patches], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def split(count, part):
    everyone = Landscapes(count, seed=42)
    return Subset(everyone, range(part)), Subset(everyone, range(part, count))


def evaluate(vit, loader):
    vit.eval()
    top1 = torch.zeros(())
    with torch.no_grad():
        for batch in loader:
            top1 += (vit(batch["pixels"]).argmax(1) == batch["kind"]).sum()
    vit.train()
    return (top1 / len(loader.dataset)).item()


def fit(epochs=5, accumulate=2):
    torch.manual_seed(42)
    train_part, test_part = split(262, 222)
    train_loader = DataLoader(train_part, batch_size=16, shuffle=True)
    test_loader = DataLoader(test_part, batch_size=16)
    vit = ViT()
    optimizer = torch.optim.AdamW(vit.parameters(), lr=2e-3, weight_decay=0.05)
    updates = epochs * math.ceil(len(train_loader) / accumulate)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates - 4)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[4])
    vit.train()
    for epoch in range(epochs):
        waiting, shown = [], 0.0
        for number, batch in enumerate(train_loader, start=1):
            waiting.append(batch)
            if number % accumulate and number < len(train_loader):
                continue
            samples = sum(len(part["kind"]) for part in waiting)
            for part in waiting:
                logits = vit(part["pixels"])
                loss = F.cross_entropy(logits, part["kind"], reduction="sum") / samples
                loss.backward()
                shown += loss.item()
            nn.utils.clip_grad_norm_(vit.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            waiting = []
        print(f"epoch {epoch}: {shown / math.ceil(number / accumulate):.3f}, top-1 {evaluate(vit, test_loader):.3f}")
    state = {"vit": vit.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save(state, "vit.pt")


if __name__ == "__main__":
    fit()
