from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

# memory limit: 12MiB

DATA = np.random.default_rng(0).integers(0, 60, 20_000).astype(np.uint16)


@dataclass
class GPTConfig:
    vocabulary: int = 60
    longest: int = 256
    context: int = 64
    width: int = 32
    heads: int = 4
    layers: int = 2


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.register_buffer("mask", torch.tril(torch.ones(config.longest, config.longest)).bool())

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = CausalSelfAttention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.longest, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens, targets=None):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


def get_batch(length, size=8):
    starts = torch.randint(len(DATA) - length - 1, (size,)).tolist()
    x = torch.stack([torch.from_numpy(DATA[i : i + length].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(DATA[i + 1 : i + 1 + length].astype(np.int64)) for i in starts])
    return x, y


torch.manual_seed(1337)
config = GPTConfig()
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(12):
    x, y = get_batch(config.context)
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        print(step, loss.item())
