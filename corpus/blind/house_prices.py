"""Price regression on a mixed table: embeddings for the categories, scaled target, early stopping."""
import argparse

import numpy as np
import pandas as pd
import torch
import torch.nn as nn

NUMERIC = ["area", "age", "distance", "index", "noise"]
CATEGORIC = ["district", "style", "seller"]


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rows", type=int, default=1400)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--patience", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-2)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def make_table(n, seed):
    """Sales in order of time; the price index creeps up over the period."""
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({
        "area": rng.gamma(6, 18, n),
        "age": rng.uniform(0, 80, n),
        "distance": rng.exponential(6, n),
        "index": np.linspace(97, 105, n) + rng.normal(0, 2, n),
        "noise": rng.normal(0, 1, n),
    })
    district_weight = rng.dirichlet(np.full(40, 0.6))
    df["district"] = [f"d{k:02d}" for k in rng.choice(40, n, p=district_weight)]
    df["style"] = [f"s{k}" for k in rng.integers(8, size=n)]
    df["seller"] = [f"agent{k:02d}" for k in rng.integers(15, size=n)]
    level = pd.Series(rng.normal(0, 0.35, 40), index=[f"d{k:02d}" for k in range(40)])
    taste = pd.Series(rng.normal(0, 0.25, 8), index=[f"s{k}" for k in range(8)])
    factor = np.exp(df["district"].map(level) + df["style"].map(taste)).to_numpy()
    base = 40 + 1.6 * df["area"] - 0.5 * df["age"] - 2.5 * df["distance"] + 0.01 * (df["age"] - 40) ** 2
    df["price"] = base * factor * (df["index"] / 100) ** 2 + rng.normal(0, 30, n)
    return df


def split_by_time(df):
    """The newest rows are the test; validation is drawn from the older ones."""
    n_test = len(df) // 5
    older, test = df.iloc[:-n_test], df.iloc[-n_test:]
    val = older.sample(frac=0.2, random_state=1)
    return older.drop(val.index), val, test


class Encoder:
    """Learns scaling and category codes from one table; code 0 is kept for unknown categories."""

    def fit(self, df):
        self.mean, self.std = df[NUMERIC].mean(), df[NUMERIC].std()
        self.codes = {c: {v: i + 1 for i, v in enumerate(sorted(df[c].unique()))} for c in CATEGORIC}
        self.y_mean, self.y_std = df["price"].mean(), df["price"].std()
        return self

    def transform(self, df):
        num = ((df[NUMERIC] - self.mean) / self.std).to_numpy(np.float32)
        cat = np.stack([df[c].map(self.codes[c]).fillna(0).to_numpy(np.int64) for c in CATEGORIC], axis=1)
        y = ((df["price"] - self.y_mean) / self.y_std).to_numpy(np.float32)
        return torch.tensor(num), torch.tensor(cat), torch.tensor(y)


class PriceNet(nn.Module):
    def __init__(self, sizes, n_numeric, width=128):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(n + 1, 4) for n in sizes])
        self.body = nn.Sequential(
            nn.Linear(4 * len(sizes) + n_numeric, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, num, cat):
        parts = [emb(cat[:, i]) for i, emb in enumerate(self.embeddings)]
        return self.body(torch.cat(parts + [num], dim=1)).squeeze(1)


@torch.no_grad()
def rmse(model, data, encoder):
    """Root mean squared error in units of price."""
    model.eval()
    num, cat, y = data
    error = model(num, cat) - y
    return error.pow(2).mean().sqrt().item() * encoder.y_std


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    train_df, val_df, test_df = split_by_time(make_table(args.rows, args.seed))
    encoder = Encoder().fit(train_df)
    train, val, test = (encoder.transform(part) for part in (train_df, val_df, test_df))
    model = PriceNet([len(encoder.codes[c]) for c in CATEGORIC], len(NUMERIC))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    print(f"before: test RMSE {rmse(model, test, encoder):.1f} (price std {test_df['price'].std():.1f})")

    best, best_state, waited = float("inf"), None, 0
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for rows in torch.randperm(len(train[2])).split(args.batch_size):
            num, cat, y = (part[rows] for part in train)
            loss = (model(num, cat) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        score = rmse(model, val, encoder)
        if epoch % 5 == 0:
            print(f"epoch {epoch:3d}  train loss {np.mean(losses):.4f}  validation RMSE {score:.1f}")
        if score < best:
            best, waited = score, 0
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            waited += 1
            if waited >= args.patience:
                print(f"stopped after epoch {epoch}")
                break
    model.load_state_dict(best_state)
    print(f"after: validation RMSE {rmse(model, val, encoder):.1f}, test RMSE {rmse(model, test, encoder):.1f}")


if __name__ == "__main__":
    main()
