"""Loans that are not paid back: columns of numbers, two categories, an MLP that gives one logit."""

import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PURPOSES, REGIONS = 6, 5


def applications(count, seed):
    rng = np.random.default_rng(seed)
    income = rng.uniform(15_000, 90_000, count)
    amount = rng.uniform(1_000, 30_000, count)
    years = rng.integers(0, 30, count)
    late = rng.poisson(0.8, count)
    purpose = rng.integers(0, PURPOSES, count)
    region = rng.integers(0, REGIONS, count)
    risk = 4.0 * amount / income + 1.1 * late - 0.08 * years + 1.2 * (purpose == 2) - 1.0 * (region == 0) - 1.8
    unpaid = rng.random(count) < 1 / (1 + np.exp(-1.5 * risk))
    numbers = np.stack([income, amount, years, late], axis=1)
    categories = np.stack([purpose, region], axis=1)
    return numbers, categories, unpaid.astype(np.float32)


def standardise(numbers, mean, std):
    return ((numbers - mean) / std).astype(np.float32)


class Scorer(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.purpose = nn.Embedding(PURPOSES, 3)
        self.region = nn.Embedding(REGIONS, 3)
        self.enter = nn.Linear(4 + 6, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in range(depth)])
        self.drop = nn.Dropout(0.1)
        self.leave = nn.Linear(width, 1)

    def forward(self, numbers, categories):
        x = torch.cat([numbers, self.purpose(categories[:, 0]), self.region(categories[:, 1])], dim=1)
        x = torch.relu(self.enter(x))
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = self.drop(torch.relu(norm(layer(x))))
        return self.leave(x).squeeze(1)


def evaluate(model, loader, criterion):
    """Mean loss and share of right decisions."""
    model.eval()
    loss, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for numbers, categories, unpaid in loader:
            logits = model(numbers, categories)
            loss += criterion(logits, unpaid).item() * len(unpaid)
            decided = torch.sigmoid(logits) > 0.5
            right += (decided == unpaid.bool()).sum().item()
            seen += len(unpaid)
    return loss / seen, right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(2024)
    numbers, categories, unpaid = applications(1500, seed=1)
    parts = {"train": slice(0, 1150), "valid": slice(1150, 1300), "test": slice(1300, 1500)}
    mean, std = numbers[parts["train"]].mean(axis=0), numbers[parts["train"]].std(axis=0)
    numbers = standardise(numbers, mean, std)
    loaders = {}
    for name, part in parts.items():
        data = TensorDataset(*(torch.from_numpy(column[part]) for column in (numbers, categories, unpaid)))
        loaders[name] = DataLoader(data, batch_size=64, shuffle=name == "train")

    model = Scorer(args.width, depth=2)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    best, best_weights = float("inf"), None
    for epoch in range(args.epochs):
        model.train()
        for numbers, categories, unpaid in loaders["train"]:
            optimizer.zero_grad()
            logits = model(numbers, categories)
            loss = criterion(logits, unpaid)
            loss.backward()
            optimizer.step()
        scheduler.step()
        valid_loss, accuracy = evaluate(model, loaders["valid"], criterion)
        if valid_loss < best:
            best, best_weights = valid_loss, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: {loss.item():.3f}, valid {valid_loss:.3f}, {accuracy:.3f} right")
    model.load_state_dict(best_weights)
    test_loss, accuracy = evaluate(model, loaders["test"], criterion)
    print(f"test {test_loss:.3f}, {accuracy:.3f} right")
    torch.save({"weights": best_weights, "mean": mean, "std": std}, "loans.pt")


if __name__ == "__main__":
    main()
