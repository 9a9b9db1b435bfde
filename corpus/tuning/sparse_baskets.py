"""Will the customer come back? Baskets of products as bags of embeddings, with sparse gradients for the big table."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--products", type=int, default=3000)
parser.add_argument("--baskets", type=int, default=1500)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--seed", type=int, default=4)


class Baskets(Dataset):
    def __init__(self, count, products, seed):
        charm = np.random.default_rng(0).normal(0, 1, products)
        popular = 1 / np.arange(3, products + 3)
        popular /= popular.sum()
        rng = np.random.default_rng(seed)
        self.items, self.day, self.back = [], [], []
        for _ in range(count):
            items = rng.choice(products, size=rng.integers(4, 16), replace=False, p=popular)
            day = rng.normal(0, 1)
            score = 3 * charm[items].mean() + 0.8 * day
            self.items.append(torch.from_numpy(items))
            self.day.append(day)
            self.back.append(float(rng.random() < 1 / (1 + np.exp(-2 * score))))

    def __len__(self):
        return len(self.back)

    def __getitem__(self, index):
        return self.items[index], self.day[index], self.back[index]


def collate(samples):
    items, day, back = zip(*samples, strict=True)
    sizes = torch.tensor([0, *(len(i) for i in items[:-1])])
    return {
        "items": torch.cat(items),
        "offsets": sizes.cumsum(0),
        "day": torch.tensor(day, dtype=torch.float32),
        "back": torch.tensor(back, dtype=torch.float32),
    }


class Customers(nn.Module):
    def __init__(self, products, size=16):
        super().__init__()
        self.products = nn.EmbeddingBag(products, size, mode="mean", sparse=True)
        nn.init.normal_(self.products.weight, std=0.5)
        self.rest = nn.Sequential(nn.Linear(size + 1, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, items, offsets, day):
        bag = self.products(items, offsets)
        return self.rest(torch.cat([bag, day.unsqueeze(1)], dim=1)).squeeze(1)


def evaluate(model, loader):
    model.eval()
    loss = right = count = 0
    with torch.no_grad():
        for batch in loader:
            logits = model(batch["items"], batch["offsets"], batch["day"])
            loss += nn.functional.binary_cross_entropy_with_logits(logits, batch["back"], reduction="sum").item()
            right += ((logits > 0) == (batch["back"] > 0.5)).sum().item()
            count += len(logits)
    return loss / count, right / count


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train = DataLoader(Baskets(args.baskets, args.products, seed=1), args.batch_size, shuffle=True, collate_fn=collate)
    test = DataLoader(Baskets(300, args.products, seed=2), 100, collate_fn=collate)
    model = Customers(args.products)
    sparse = torch.optim.SparseAdam(model.products.parameters(), lr=args.lr)
    dense = torch.optim.Adam(model.rest.parameters(), lr=args.lr)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for batch in train:
            logits = model(batch["items"], batch["offsets"], batch["day"])
            loss = criterion(logits, batch["back"])
            sparse.zero_grad()
            dense.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
            total += loss.item() * len(logits)
        test_loss, accuracy = evaluate(model, test)
        print(f"epoch {epoch}: {total / args.baskets:.4f}  test {test_loss:.4f}  right {accuracy:.3f}")


if __name__ == "__main__":
    main()
