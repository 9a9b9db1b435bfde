"""Which customers leave: embeddings of categories beside numbers, a plateau schedule, early stopping."""

import argparse
import copy

import numpy as np
import torch
import torch.nn as nn


def make_customers(n, rng):
    plan, region = rng.integers(0, 4, n), rng.integers(0, 6, n)
    months = rng.gamma(2.0, 12.0, n)
    bill = rng.normal(70, 25, n)
    calls = rng.poisson(2, n)
    score = 1.5 * (plan == 3) - 0.08 * months + 0.05 * (bill - 70) + 0.6 * calls - 0.5
    leaves = score + rng.logistic(0, 0.3, n) > 0
    numbers = np.stack([months, bill, calls], 1)
    return {"cat": np.stack([plan, region], 1), "num": numbers.astype(np.float32), "y": leaves.astype(np.float32)}


def take(table, rows):
    return {key: column[rows] for key, column in table.items()}


class ChurnNet(nn.Module):
    def __init__(self, cards=(4, 6), n_num=3, hidden=32, p=0.15):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(card, 4) for card in cards])
        self.fc1 = nn.Linear(4 * len(cards) + n_num, hidden)
        self.bn = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(p)
        self.out = nn.Linear(hidden, 1)

    def forward(self, cat, num):
        parts = [emb(cat[:, i]) for i, emb in enumerate(self.embs)]
        h = torch.cat([*parts, num], dim=1)
        h = torch.relu(self.bn(self.fc1(h)))
        h = self.drop(torch.relu(self.fc2(h)))
        return self.out(h).squeeze(1)


def minibatches(table, size, rng):
    order = rng.permutation(len(table["y"]))
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield tuple(torch.from_numpy(table[key][rows]) for key in ("cat", "num", "y"))


@torch.no_grad()
def score(model, table, criterion):
    model.eval()
    cat, num, y = (torch.from_numpy(table[key]) for key in ("cat", "num", "y"))
    logits = model(cat, num)
    guessed = logits > 0
    return criterion(logits, y).item(), (guessed == y.bool()).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--shrink", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(17)
    rng = np.random.default_rng(17)
    everyone = make_customers(672, rng)
    rows = rng.permutation(672)
    train, val = take(everyone, rows[:480]), take(everyone, rows[480:])
    center, width = train["num"].mean(0), train["num"].std(0)
    for part in (train, val):
        part["num"] = (part["num"] - center) / width

    model = ChurnNet()
    rare = float((1 - train["y"]).sum() / max(1.0, train["y"].sum()))
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(rare))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    best, best_weights, waited = float("inf"), None, 0
    for epoch in range(args.epochs):
        model.train()
        for cat, num, y in minibatches(train, args.batch, rng):
            optimizer.zero_grad(set_to_none=True)
            logits = model(cat, num)
            loss = criterion(logits, y)
            loss = loss + args.shrink * sum(emb.weight.pow(2).sum() for emb in model.embs)
            loss.backward()
            optimizer.step()
        val_loss, val_acc = score(model, val, criterion)
        plateau.step(val_loss)
        print(f"{epoch}: train {loss.item():.3f} val {val_loss:.3f} accuracy {val_acc:.3f}")
        waited += 1
        if val_loss < best:
            best, waited = val_loss, 0
            best_weights = copy.deepcopy(model.state_dict())
        if waited == 3:
            break
    model.load_state_dict(best_weights)
    torch.save(model.state_dict(), "churn.pt")


if __name__ == "__main__":
    main()
