"""Moves of a rook and a knight as text, a decoder written by hand: token file, recomputed blocks, accumulation, EMA."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LETTERS = "\n RNabcdefgh12345678"


@dataclass
class Config:
    block: int = 32
    width: int = 32
    heads: int = 4
    layers: int = 3
    dropout: float = 0.05
    micro: int = 8
    accumulate: int = 2
    steps: int = 40
    warmup: int = 5
    lr: float = 6e-3
    average: float = 0.9


def game(rng):
    """One piece moves legally: a rook along a line, a knight in its jump."""
    piece, x, y = rng.choice(["R", "N"]), int(rng.integers(8)), int(rng.integers(8))
    text = piece
    for _ in range(int(rng.integers(5, 9))):
        text += f" {'abcdefgh'[x]}{y + 1}"
        if piece == "R":
            x, y = (int(rng.integers(8)), y) if rng.random() < 0.5 else (x, int(rng.integers(8)))
        else:
            jumps = [(x + a, y + b) for a in (-2, -1, 1, 2) for b in (-2, -1, 1, 2) if abs(a) != abs(b)]
            jumps = [(a, b) for a, b in jumps if 0 <= a < 8 and 0 <= b < 8]
            x, y = jumps[int(rng.integers(len(jumps)))]
    return text + "\n"


def save_games(path, games, seed):
    rng = np.random.default_rng(seed)
    text = "".join(game(rng) for _ in range(games))
    np.asarray([LETTERS.index(c) for c in text], dtype=np.uint8).tofile(path)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads, self.p = cfg.heads, cfg.dropout
        self.ln1, self.ln2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.query, self.key, self.value = (nn.Linear(cfg.width, cfg.width) for _ in range(3))
        self.proj = nn.Linear(cfg.width, cfg.width)
        self.up, self.down = nn.Linear(cfg.width, 4 * cfg.width), nn.Linear(4 * cfg.width, cfg.width)
        self.register_buffer("future", torch.ones(cfg.block, cfg.block).triu(1).bool(), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        h = self.ln1(x)
        q, k, v = (
            f(h).view(B, T, self.heads, C // self.heads).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        att = (q @ k.mT) / math.sqrt(q.size(-1))
        att = att.masked_fill(self.future[:T, :T], -torch.inf).softmax(-1)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        x = x + F.dropout(self.proj(y), self.p, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), self.p, self.training)


class ChessGPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(LETTERS), cfg.width), nn.Embedding(cfg.block, cfg.width)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.ln = nn.LayerNorm(cfg.width)
        self.out = nn.Linear(cfg.width, len(LETTERS), bias=False)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)
        self.out.weight = self.wte.weight

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.out(self.ln(x))


class Games:
    def __init__(self, path, cfg, seed):
        self.data, self.cfg = np.memmap(path, dtype=np.uint8, mode="r"), cfg
        self.rng = np.random.default_rng(seed)

    def batch(self, rows):
        at = self.rng.integers(0, len(self.data) - self.cfg.block - 1, rows)
        window = np.stack([self.data[i : i + self.cfg.block + 1] for i in at]).astype(np.int64)
        window = torch.from_numpy(window)
        return window[:, :-1], window[:, 1:]


def rate(step, cfg):
    if step < cfg.warmup:
        return cfg.lr * (step + 1) / cfg.warmup
    done = (step - cfg.warmup) / (cfg.steps - cfg.warmup)
    return cfg.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def update_average(average, model, keep):
    for slow, fast in zip(average.parameters(), model.parameters(), strict=False):
        slow.lerp_(fast, 1 - keep)


@torch.no_grad()
def held_out_loss(model, games, batches=4):
    model.eval()
    losses = []
    for _ in range(batches):
        x, y = games.batch(16)
        losses.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    model.train()
    return sum(losses) / len(losses)


def run(cfg):
    torch.manual_seed(64)
    save_games("games.bin", 500, seed=1)
    save_games("held.bin", 60, seed=2)
    train, held = Games("games.bin", cfg, 3), Games("held.bin", cfg, 4)
    model = ChessGPT(cfg)
    average = copy.deepcopy(model).requires_grad_(False)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=cfg.lr, betas=(0.9, 0.95))
    model.train()
    for step in range(cfg.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, cfg)
        shown = 0.0
        for _ in range(cfg.accumulate):
            x, y = train.batch(cfg.micro)
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            (loss / cfg.accumulate).backward()
            shown += loss.item() / cfg.accumulate
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        update_average(average, model, cfg.average)
        if (step + 1) % 10 == 0:
            print(f"{step + 1:3d} {shown:.3f} held out {held_out_loss(average, held):.3f}")
    torch.save({"model": model.state_dict(), "average": average.state_dict()}, "chess.pt")


if __name__ == "__main__":
    run(Config())
