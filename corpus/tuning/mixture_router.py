"""A mixture of experts on readings of four regimes: two experts a row, a balance term, updates of four parts."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    inputs: int = 6
    width: int = 24
    experts: int = 4
    chosen: int = 2
    balance: float = 0.02
    rate: float = 2e-2
    batch: int = 64
    parts: int = 4
    epochs: int = 5
    rows: int = 960


class Expert(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.leave = nn.Linear(width, width)

    def forward(self, x):
        return self.leave(torch.nn.functional.silu(self.enter(x)))


class Mixture(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.chosen = s.chosen
        self.router = nn.Linear(s.inputs, s.experts, bias=False)
        self.offset = nn.Parameter(torch.zeros(s.experts))
        self.experts = nn.ModuleList([Expert(s.inputs, s.width) for _ in range(s.experts)])
        self.norm = nn.LayerNorm(s.width)
        self.value = nn.Linear(s.width, 1)

    def forward(self, x):
        share = torch.softmax(self.router(x) + self.offset, dim=-1)
        weight, index = share.topk(self.chosen, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        mixed = x.new_zeros(len(x), self.norm.normalized_shape[0])
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(index == number)
            if len(rows):
                mixed = mixed.index_add(0, rows, weight[rows, slot, None] * expert(x[rows]))
        used = torch.zeros_like(share).scatter(1, index, 1.0).mean(dim=0)
        balance = len(self.experts) * (used * share.mean(dim=0)).sum() / self.chosen
        return self.value(torch.relu(self.norm(mixed))).squeeze(-1), balance


def readings(count, inputs, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, inputs, generator=g)
    regime = 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    slopes = torch.randn(4, inputs, generator=torch.Generator().manual_seed(5))
    y = (x * slopes[regime]).sum(dim=1) / inputs**0.5 + 0.05 * torch.randn(count, generator=g)
    return x, y


def held_out_error(model, x, y):
    model.eval()
    with torch.no_grad():
        guess, _ = model(x)
        return nn.functional.mse_loss(guess, y).item()


def main(s: Settings):
    torch.manual_seed(31)
    x, y = readings(s.rows, s.inputs, seed=1)
    x_held, y_held = readings(160, s.inputs, seed=2)
    model = Mixture(s)
    optimizer = torch.optim.Adam(model.parameters(), lr=s.rate)
    updates = s.epochs * (s.rows // s.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates, eta_min=s.rate / 20)
    for epoch in range(s.epochs):
        model.train()
        order = torch.randperm(s.rows)
        for start in range(0, s.rows, s.batch):
            batch = order[start : start + s.batch]
            optimizer.zero_grad()
            for part in batch.chunk(s.parts):
                guess, balance = model(x[part])
                error = nn.functional.mse_loss(guess, y[part])
                loss = (error + s.balance * balance) / s.parts
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: last error {error.item():.3f}, held out {held_out_error(model, x_held, y_held):.3f}")


if __name__ == "__main__":
    main(Settings())
