"""Easy rows first: a table is read in the order of its noise, more of it in each phase, and never shuffled across."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


def table(rows, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    hard = rng.uniform(0, 1, rows).astype(np.float32)
    clean = np.tanh(x[:, 0] + x[:, 1] * x[:, 2]) - 0.5 * np.abs(x[:, 3])
    y = (clean + 0.5 * hard * rng.normal(size=rows)).astype(np.float32)
    return x, y, hard


class EasyFirst(Sampler):
    """The easiest share of the rows, in blocks; rows change places within a block only."""

    def __init__(self, hard, block):
        self.order, self.block, self.share = torch.from_numpy(np.argsort(hard)), block, 0.25

    def __len__(self):
        return int(self.share * len(self.order))

    def __iter__(self):
        for part in self.order[: len(self)].split(self.block):
            yield from part[torch.randperm(len(part))].tolist()


def main():
    torch.manual_seed(66)
    x, y, hard = table(640, seed=1)
    x_test, y_test, _ = (torch.from_numpy(part) for part in table(128, seed=2))
    sampler = EasyFirst(hard, block=80)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=20, sampler=sampler)
    net = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    for phase, share in enumerate((0.25, 0.5, 0.75, 1.0, 1.0)):
        sampler.share = share
        total = seen = 0
        for row, value in loader:
            loss = nn.functional.l1_loss(net(row), value)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, seen = total + loss.item() * len(value), seen + len(value)
        with torch.no_grad():
            error = (net(x_test) - y_test).abs().mean().item()
        print(f"phase {phase}: {seen} rows, {total / seen:.3f}, test {error:.3f}")
    torch.save(net.state_dict(), "rows.pt")


if __name__ == "__main__":
    main()
