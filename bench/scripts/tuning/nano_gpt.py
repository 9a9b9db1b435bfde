"""A small GPT in nanoGPT's manner: accumulation, weight decay by dimension, fused AdamW, compile, clipping."""

import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

batch_size, context, vocabulary, width, heads, layers, accumulation = 3, 192, 6000, 192, 6, 3, 4
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(11)
tokens = np.random.default_rng(0).integers(0, vocabulary, 50_000).astype(np.uint16)


def get_batch():
    starts = torch.randint(len(tokens) - context - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(tokens[i : i + context].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + context].astype(np.int64)) for i in starts])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (z.view(b, t, heads, c // heads).transpose(1, 2) for z in self.qkv(self.before(x)).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        weights = F.softmax(scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, x, y):
        x = self.tokens(x) + self.places(torch.arange(x.size(1), device=x.device))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return scores, F.cross_entropy(scores.view(-1, scores.size(-1)), y.view(-1), ignore_index=-1)


model = GPT().to(device)
groups = [
    {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
model = torch.compile(model)
autocast = torch.amp.autocast(device_type=device, dtype=torch.bfloat16)


@torch.no_grad()
def estimate():
    model.eval()
    losses = torch.zeros(2)
    for k in range(2):
        with autocast:
            losses[k] = model(*get_batch())[1].item()
    model.train()
    return losses.mean()


X, Y = get_batch()
began = time.time()
for iteration in range(6):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * (iteration + 1) / 6
    if iteration % 2 == 0:
        print("validation", estimate())
    for _ in range(accumulation):
        with autocast:
            _, loss = model(X, Y)
            loss = loss / accumulation
        X, Y = get_batch()
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"{iteration} {loss.item() * accumulation:.4f} {norm:.3f} {time.time() - began:.1f}")
