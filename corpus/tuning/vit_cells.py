"""Blood cells by shape with a vision transformer: half of the pictures unlabelled, a slow teacher makes them agree."""

import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH, KINDS = 16, 4, 4
SETTINGS = {"width": 32, "depth": 3, "heads": 4, "drop": 0.1}


def photograph(count, seed):
    """Round, long, hollow and double cells on a noisy ground."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=g)
    rows, cols = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    centre = torch.randint(7, 9, (count, 2), generator=g)
    dy, dx = rows - centre[:, :1, None], cols - centre[:, 1:, None]
    shapes = torch.stack(
        [
            (dy**2 + dx**2) < 16,
            (dy**2 * 6 + dx**2) < 36,
            ((dy**2 + dx**2) < 20) & ((dy**2 + dx**2) > 7),
            ((dy**2 + (dx - 3) ** 2) < 6) | ((dy**2 + (dx + 3) ** 2) < 6),
        ],
        dim=1,
    )
    pictures = shapes[torch.arange(count), kind].float() + 0.2 * torch.randn(count, SIDE, SIDE, generator=g)
    return pictures.sub(0.15).div(0.42), kind


class Layer(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * width, width))

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.qkv(self.norm_a(x)).reshape(n, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(w // self.heads), dim=3)
        mixed = (attention @ v).transpose(1, 2).reshape(n, t, w)
        x = x + self.merge(mixed)
        return x + self.mlp(self.norm_b(x))


class CellViT(nn.Module):
    def __init__(self, width, depth, heads, drop):
        super().__init__()
        patches = (SIDE // PATCH) ** 2
        self.embed = nn.Linear(PATCH * PATCH, width)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.place = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads, drop) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.kind = nn.Linear(width, KINDS)

    def forward(self, pictures):
        n = len(pictures)
        cut = pictures.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH).reshape(n, -1, PATCH * PATCH)
        x = torch.cat([self.token.expand(n, -1, -1), self.embed(cut)], dim=1) + self.place
        return self.kind(self.norm(self.layers(x)[:, 0]))


def jitter(pictures):
    turned = torch.rand(len(pictures), 1, 1) < 0.5
    return torch.where(turned, pictures.flip(2), pictures) + 0.1 * torch.randn_like(pictures)


def make_trainer(student, teacher, optimizer, scheduler, agree=0.5, keep=0.9, parts=2):
    """Closures over the two networks: one update from several parts, and the score of the teacher."""

    def part_loss(labelled, kind, unlabelled):
        logits = student(jitter(labelled))
        with torch.no_grad():
            believed = teacher(unlabelled).softmax(dim=1)
        guess = F.log_softmax(student(jitter(unlabelled)), dim=1)
        return F.cross_entropy(logits, kind) + agree * F.kl_div(guess, believed, reduction="batchmean")

    def update(labelled, kind, unlabelled):
        optimizer.zero_grad()
        shown = 0.0
        for some in zip(labelled.chunk(parts), kind.chunk(parts), unlabelled.chunk(parts), strict=False):
            loss = part_loss(*some) / parts
            loss.backward()
            shown += loss.item()
        nn.utils.clip_grad_norm_(student.parameters(), 2.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=False):
                slow.mul_(keep).add_(fast, alpha=1 - keep)
        return shown

    @torch.no_grad()
    def score(pictures, kind, size=25):
        right = 0
        for some, wanted in zip(pictures.split(size), kind.split(size), strict=False):
            right += (teacher(some).argmax(dim=1) == wanted).sum().item()
        return right / len(kind)

    return update, score


def main(epochs=5, size=32):
    torch.manual_seed(77)
    pictures, kind = photograph(320, seed=1)
    unlabelled, _ = photograph(320, seed=2)
    held, held_kind = photograph(90, seed=3)
    student, teacher = CellViT(**SETTINGS), CellViT(**SETTINGS)
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=4e-3, weight_decay=0.02)
    steps = epochs * (len(pictures) // size)
    ramp = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=5)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 5, eta_min=1e-4)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [ramp, fall], milestones=[5])
    update, score = make_trainer(student, teacher, optimizer, scheduler)
    for epoch in range(epochs):
        student.train()
        shown = []
        for mine, other in zip(torch.randperm(320).split(size), torch.randperm(320).split(size), strict=False):
            shown.append(update(pictures[mine], kind[mine], unlabelled[other]))
        print(f"epoch {epoch + 1}: {sum(shown) / len(shown):.3f}, teacher {score(held, held_kind):.1%}")
    torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "cells.pt")


if __name__ == "__main__":
    main()
