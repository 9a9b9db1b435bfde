"""Sixteen experts and a router that asks two of them for each reading: many have no work in a step, and no gradient."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, EXPERTS, ASKED, REGIMES = 16, 16, 2, 6


def readings(count: int, seed: int) -> TensorDataset:
    """Twelve signals of a plant in one of six regimes; each regime has a law of its own for the output."""
    g = torch.Generator().manual_seed(seed)
    laws = torch.Generator().manual_seed(0)
    centres, slopes = 2 * torch.randn(REGIMES, 12, generator=laws), torch.randn(REGIMES, 12, generator=laws) / 3
    regime = torch.randint(REGIMES, (count,), generator=g)
    away = torch.randn(count, 12, generator=g)
    y = (slopes[regime] * away).sum(dim=1) + 0.05 * torch.randn(count, generator=g)
    return TensorDataset(centres[regime] + away, y)


class Experts(nn.Module):
    def __init__(self, width: int, experts: int, asked: int) -> None:
        super().__init__()
        self.asked = asked
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)) for _ in range(experts)]
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chances = F.softmax(self.router(x), dim=-1)
        weight, chosen = chances.topk(self.asked, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            if len(row) == 0:
                continue
            out = out.index_add(0, row, weight[row, place, None] * expert(x[row]))
        load = F.one_hot(chosen, len(self.experts)).float().sum(dim=1).mean(dim=0) / self.asked
        balance = len(self.experts) * (load * chances.mean(dim=0)).sum()
        return out, balance


class Plant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(12, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.experts = Experts(WIDTH, EXPERTS, ASKED)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.enter(x)
        mixed, balance = self.experts(self.norm(h))
        return self.head(h + mixed).squeeze(-1), balance


@torch.no_grad()
def error(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    summed = sum(F.mse_loss(model(x)[0], y, reduction="sum").item() for x, y in loader)
    return summed / len(loader.dataset)


def main() -> None:
    torch.manual_seed(31)
    train = DataLoader(readings(384, seed=1), batch_size=16, shuffle=True)
    val = DataLoader(readings(120, seed=2), batch_size=60)
    model = Plant()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=1e-3)
    for epoch in range(1, 5):
        model.train()
        idle = 0
        for x, y in train:
            guess, balance = model(x)
            loss = F.mse_loss(guess, y) + 0.01 * balance
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            idle += sum(expert[0].weight.grad is None for expert in model.experts.experts)
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f} error {error(model, val):.3f} idle {idle / len(train):.1f} a step")
    torch.save(model.state_dict(), "plant.pt")


if __name__ == "__main__":
    main()
