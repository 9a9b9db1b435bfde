"""Orders of a wholesaler sorted by a mixture of experts; an expert has room for so many rows, the others pass by."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

COLUMNS, CLASSES = 10, 5


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.enter, self.leave = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.leave(F.gelu(self.enter(x)))


class CrowdedLayer(nn.Module):
    """Top-1 routing as in Switch: rows beyond an expert's capacity keep only the residual path."""

    def __init__(self, width, hidden, experts, capacity_factor=1.25, noise=0.1):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(experts)])
        self.norm = nn.LayerNorm(width)
        self.capacity_factor, self.noise = capacity_factor, noise

    def forward(self, x):
        h = self.norm(x)
        scores = self.router(h)
        if self.training:
            scores = scores + self.noise * torch.randn_like(scores)
        chances = F.softmax(scores, dim=-1)
        gate, chosen = chances.max(dim=-1)
        room = math.ceil(self.capacity_factor * len(x) / len(self.experts)) if self.training else len(x)
        out = torch.zeros_like(x)
        dropped = 0
        for number, expert in enumerate(self.experts):
            rows = torch.where(chosen == number)[0]
            dropped += max(0, len(rows) - room)
            rows = rows[:room]
            if len(rows):
                out = out.index_add(0, rows, gate[rows, None] * expert(h[rows]))
        share = F.one_hot(chosen, len(self.experts)).float().mean(dim=0)
        balance = len(self.experts) * (share * chances.mean(dim=0)).sum()
        return x + out, balance, dropped


class Sorter(nn.Module):
    def __init__(self, width=32, layers=2, experts=4):
        super().__init__()
        self.enter = nn.Linear(COLUMNS, width)
        self.layers = nn.ModuleList([CrowdedLayer(width, 48, experts) for _ in range(layers)])
        self.leave = nn.Linear(width, CLASSES)

    def forward(self, x):
        x, balance, dropped = self.enter(x), 0.0, 0
        for layer in self.layers:
            x, more, lost = layer(x)
            balance, dropped = balance + more, dropped + lost
        return self.leave(x), balance, dropped


def orders(count, seed):
    g = torch.Generator().manual_seed(seed)
    centres = 1.3 * torch.randn(2 * CLASSES, COLUMNS, generator=torch.Generator().manual_seed(99))
    part = torch.randint(0, 2 * CLASSES, (count,), generator=g)
    return TensorDataset(centres[part] + torch.randn(count, COLUMNS, generator=g), part % CLASSES)


def main():
    torch.manual_seed(8)
    train_loader = DataLoader(orders(640, 1), batch_size=40, shuffle=True)
    test_loader = DataLoader(orders(200, 2), batch_size=100)
    model = Sorter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(5):
        model.train()
        total, lost = 0.0, 0
        for x, y in train_loader:
            scores, balance, dropped = model(x)
            loss = F.cross_entropy(scores, y) + 0.01 * balance
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(y)
            lost += dropped
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in test_loader:
                right += (model(x)[0].argmax(dim=1) == y).sum().item()
        print(f"epoch {epoch}: loss {total / 640:.4f} dropped {lost / 1280:.3f} accuracy {right / 200:.3f}")
    torch.save(model.state_dict(), "sorter.pt")


if __name__ == "__main__":
    main()
