"""A data set with random augmentation in the workers of a DataLoader."""

import random
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100


class Noisy(Dataset):
    def __init__(self, rows):
        drawn = np.random.default_rng(14)
        self.x = drawn.normal(size=(rows, 16)).astype(np.float32)
        self.y = (self.x[:, 0] * self.x[:, 1] > 0).astype(np.int64)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index] * (1 + 0.1 * random.random()) + 0.05 * torch.randn(16).numpy()
        return torch.from_numpy(x.astype(np.float32)), int(self.y[index])


def seeded(worker):
    random.seed(torch.initial_seed() % 2**32)


if __name__ == "__main__":
    torch.manual_seed(14)
    loader = DataLoader(Noisy(1600), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=seeded)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    done = 0
    while done < updates:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % 10 == 0:
                print(done, loss.item())
            if done == updates:
                break
