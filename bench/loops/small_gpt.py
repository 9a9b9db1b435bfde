"""A small GPT on a repeated text, with warm-up and clipping."""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(5)
text = "the quick brown fox jumps over the lazy dog and runs away from all the bees. " * 60
symbols = sorted(set(text))
tokens = torch.tensor([symbols.index(each) for each in text])
context, width = 32, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (each.view(b, t, 4, -1).transpose(1, 2) for each in self.qkv(self.before(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
        return x + self.mlp(self.after(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(symbols), width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(symbols), bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def batch(source, size):
    starts = torch.randint(0, len(source) - context - 1, (size,))
    rows = torch.stack([source[s : s + context + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


training, held_out = tokens[:-800], tokens[-800:]
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda n: min(1, (n + 1) / 10) * 0.5 * (1 + math.cos(math.pi * min(1, n / updates)))
)
for step in range(updates):
    x, y = batch(training, 16)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 25 == 24:
        model.eval()
        with torch.no_grad():
            x, y = batch(held_out, 32)
            print(step, loss.item(), F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
        model.train()
