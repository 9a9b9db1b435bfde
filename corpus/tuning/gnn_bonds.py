"""Energies of small invented molecules: a message-passing network by hand, graphs joined into one by the collate."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ATOMS, BONDS = 5, 3


@dataclass
class Config:
    width: int = 32
    rounds: int = 3
    batch_size: int = 20
    epochs: int = 5
    lr: float = 4e-3
    jitter: float = 0.02
    sizes: tuple = field(default=(240, 50))


@dataclass
class Batch:
    atoms: torch.Tensor  # (atoms,) kind of each
    charges: torch.Tensor  # (atoms, 1)
    edges: torch.Tensor  # (2, directed bonds)
    bonds: torch.Tensor  # (directed bonds,) kind of each
    graph: torch.Tensor  # (atoms,) which molecule
    energy: torch.Tensor  # (molecules,)


def molecule(rng):
    n = int(rng.integers(4, 10))
    atoms = rng.integers(0, ATOMS, n)
    charges = rng.normal(0, 1, (n, 1)).astype(np.float32)
    pairs = [(i, int(rng.integers(0, i))) for i in range(1, n)]  # a tree, and one ring
    pairs += [(0, n - 1)] if (n - 1, 0) not in pairs else []
    bonds = rng.integers(0, BONDS, len(pairs))
    energy = 0.0
    for (i, j), kind in zip(pairs, bonds, strict=True):
        energy += (1 + kind) * np.cos(atoms[i] + atoms[j]) + 0.8 * charges[i, 0] * charges[j, 0]
    both = np.array(pairs + [(j, i) for i, j in pairs]).T
    return {"atoms": atoms, "charges": charges, "edges": both, "bonds": np.tile(bonds, 2), "energy": energy}


class Molecules(Dataset):
    def __init__(self, count, seed, jitter=0.0):
        rng = np.random.default_rng(seed)
        self.items = [molecule(rng) for _ in range(count)]
        self.jitter = jitter
        self.energies = np.array([item["energy"] for item in self.items])
        self.mean, self.std = self.energies.mean(), self.energies.std()

    def scaled_like(self, other):
        self.mean, self.std = other.mean, other.std
        return self

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = dict(self.items[index])
        charges = torch.from_numpy(item["charges"])
        if self.jitter:
            charges = charges + self.jitter * torch.randn(charges.shape)
        item["charges"] = charges
        item["energy"] = (item["energy"] - self.mean) / self.std
        return item


def join(items):
    sizes = [len(item["atoms"]) for item in items]
    offsets = np.cumsum([0, *sizes[:-1]])
    return Batch(
        atoms=torch.cat([torch.from_numpy(item["atoms"]) for item in items]),
        charges=torch.cat([item["charges"] for item in items]),
        edges=torch.cat([torch.from_numpy(item["edges"] + o) for item, o in zip(items, offsets, strict=True)], dim=1),
        bonds=torch.cat([torch.from_numpy(item["bonds"]) for item in items]),
        graph=torch.repeat_interleave(torch.arange(len(items)), torch.tensor(sizes)),
        energy=torch.tensor([item["energy"] for item in items], dtype=torch.float32),
    )


class Round(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bond = nn.Embedding(BONDS, width)
        self.message = nn.Sequential(nn.Linear(3 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, h, edges, bonds):
        source, target = edges
        messages = self.message(torch.cat([h[source], h[target], self.bond(bonds)], dim=-1))
        received = torch.zeros_like(h).index_add(0, target, messages)
        return h + self.update(torch.cat([self.norm(h), received], dim=-1))


class BondNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.atom = nn.Embedding(ATOMS, config.width)
        self.charge = nn.Linear(1, config.width)
        self.rounds = nn.ModuleList([Round(config.width) for _ in range(config.rounds)])
        self.readout = nn.Sequential(nn.Linear(config.width, config.width), nn.SiLU(), nn.Linear(config.width, 1))

    def forward(self, batch):
        h = self.atom(batch.atoms) + self.charge(batch.charges)
        for layer in self.rounds:
            h = layer(h, batch.edges, batch.bonds)
        contributions = self.readout(h).squeeze(-1)
        return torch.zeros(len(batch.energy)).index_add(0, batch.graph, contributions)


def evaluate(model, loader, unit):
    model.eval()
    off, count = 0.0, 0
    with torch.no_grad():
        for batch in loader:
            off += (model(batch) - batch.energy).abs().sum().item()
            count += len(batch.energy)
    return unit * off / count


def run(config):
    torch.manual_seed(12)
    train_set = Molecules(config.sizes[0], seed=20, jitter=config.jitter)
    test_set = Molecules(config.sizes[1], seed=21).scaled_like(train_set)
    train_loader = DataLoader(train_set, config.batch_size, shuffle=True, collate_fn=join)
    test_loader = DataLoader(test_set, config.batch_size, collate_fn=join)
    model = BondNet(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    for epoch in range(config.epochs):
        model.train()
        squares = 0.0
        for batch in train_loader:
            optimizer.zero_grad()
            guess = model(batch)
            loss = nn.functional.mse_loss(guess, batch.energy)
            loss.backward()
            optimizer.step()
            squares += loss.item() * len(batch.energy)
        scheduler.step()
        off = evaluate(model, test_loader, train_set.std)
        print(f"epoch {epoch}: mse {squares / len(train_set):.3f}, off by {off:.2f}")


if __name__ == "__main__":
    run(Config())
