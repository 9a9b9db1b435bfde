"""Low-rank adapters by hand: a small transformer learns one code book, then only adapters learn the next one."""

import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SYMBOLS, LENGTH = 16, 8


def messages(count, table, seed):
    """Symbols, and for each the entry of the table at the greater of it and the symbol before."""
    g = torch.Generator().manual_seed(seed)
    plain = torch.randint(0, SYMBOLS, (count, LENGTH), generator=g)
    before = F.pad(plain[:, :-1], (1, 0))
    return TensorDataset(plain, table[torch.maximum(plain, before)])


class Adapted(nn.Module):
    """A linear layer that stays as it is, plus a product of two thin matrices; the second starts at zero."""

    def __init__(self, linear, rank, alpha=8.0):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / math.sqrt(linear.in_features))
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        update = F.linear(F.linear(x, self.down), self.up)
        return self.linear(x) + self.scale * update


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=2))
        x = x + self.mix(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, width=48, heads=4, depth=2):
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, width)
        self.place = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, SYMBOLS)

    def forward(self, plain):
        return self.out(self.norm(self.blocks(self.symbol(plain) + self.place)))


def adapt(model, rank):
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "mix", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name), rank))
    model.out = Adapted(model.out, rank)
    return model


def fit(accelerator, model, data, test, epochs, lr, name):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)
    loader, test_loader = DataLoader(data, batch_size=32, shuffle=True), DataLoader(test, batch_size=64)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(loader))
    model, optimizer, loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, loader, test_loader, scheduler
    )
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for plain, coded in loader:
            loss = F.cross_entropy(model(plain).flatten(0, 1), coded.flatten())
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.item() * len(plain)
        model.eval()
        right = symbols = 0
        with torch.no_grad():
            for plain, coded in test_loader:
                guess, coded = accelerator.gather_for_metrics((model(plain).argmax(dim=-1), coded))
                right += (guess == coded).sum().item()
                symbols += coded.numel()
        accelerator.print(f"{name} epoch {epoch}: loss {total / len(data):.3f}, right {right / symbols:.3f}")


def main():
    set_seed(31)
    accelerator = Accelerator(cpu=True)
    table = torch.randperm(SYMBOLS)
    other = table.clone()
    other[6:11] = table[6:11].roll(1)  # the next code book differs in five entries
    model = Decoder()
    fit(accelerator, model, messages(960, table, 1), messages(160, table, 2), epochs=5, lr=6e-3, name="all weights")
    adapt(model, rank=4)
    fit(accelerator, model, messages(480, other, 3), messages(160, other, 4), epochs=6, lr=1e-2, name="adapters")


if __name__ == "__main__":
    main()
