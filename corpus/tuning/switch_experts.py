"""A mixture of experts with a switch: each delivery goes to one expert, and some experts get nothing in a batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def deliveries(count, seed):
    """Travel time in each of five towns follows other rules; the town shows only in the coordinates."""
    g = torch.Generator().manual_seed(seed)
    towns = 3 * torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    town = torch.randint(0, 5, (count,), generator=g)
    place = towns[town] / 2 + 0.3 * torch.randn(count, 2, generator=g)
    load = torch.randn(count, 4, generator=g)
    rule = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    time = (rule[town] * load).sum(dim=1) / 2 + 0.5 * torch.sin(2 * load[:, 0]) * (town % 2)
    time = time + 0.1 * torch.randn(count, generator=g)
    return TensorDataset(torch.cat([place, load], dim=1), time)


class Expert(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class Switch(nn.Module):
    """Sends each row to the expert of the greatest gate, and multiplies what comes back by that gate."""

    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, x):
        gates = F.softmax(self.gate(x), dim=1)
        weight, chosen = gates.max(dim=1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == number).flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        share = F.one_hot(chosen, len(self.experts)).float().mean(dim=0)
        balance = len(self.experts) * (share * gates.mean(dim=0)).sum()
        return out, balance


class Estimator(nn.Module):
    def __init__(self, width=24, experts=8):
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.LayerNorm(width))
        self.switch = Switch(width, experts)
        self.norm = nn.LayerNorm(width)
        self.time = nn.Linear(width, 1)

    def forward(self, x):
        x = self.enter(x)
        out, balance = self.switch(x)
        return self.time(self.norm(x + out)).squeeze(1), balance


class Trainer:
    balance_weight = 0.01

    def __init__(self, model, train_set, test_set, epochs=6, lr=4e-3):
        self.model = model
        self.train_loader = DataLoader(train_set, batch_size=20, shuffle=True)
        self.test_loader = DataLoader(test_set, batch_size=64)
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs * len(self.train_loader))

    def fit(self):
        for epoch in range(self.epochs):
            train = self.epoch()
            print(f"epoch {epoch}: train {train:.4f}, test {self.test():.4f}")

    def epoch(self):
        self.model.train()
        total, count = 0.0, 0
        for x, time in self.train_loader:
            guess, balance = self.model(x)
            error = F.mse_loss(guess, time)
            loss = error + self.balance_weight * balance
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            total += error.item() * len(time)
            count += len(time)
        return total / count

    @torch.no_grad()
    def test(self):
        self.model.eval()
        total, count = 0.0, 0
        for x, time in self.test_loader:
            guess, _ = self.model(x)
            total += F.mse_loss(guess, time, reduction="sum").item()
            count += len(time)
        return total / count


if __name__ == "__main__":
    torch.manual_seed(55)
    Trainer(Estimator(), deliveries(700, seed=1), deliveries(150, seed=2)).fit()
