"""Two noisy views of one shape shall agree: contrastive training with a projection head, then a linear probe."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Profiles of four shapes, jittered anew at each read where that is asked for."""

    def __init__(self, count, seed, jitter=True):
        self.jitter = jitter
        rng = np.random.default_rng(seed)
        self.kind = rng.integers(0, 4, count)
        angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        profile = np.stack([1 + 0.4 * np.cos((k + 1) * angle) for k in range(4)])
        size = rng.uniform(0.8, 1.2, (count, 1))
        self.profile = (profile[self.kind] * size).astype(np.float32)

    def __len__(self):
        return len(self.kind)

    def view(self, profile):
        if not self.jitter:
            return torch.from_numpy(profile)
        turned = np.roll(profile, np.random.randint(24))
        return torch.from_numpy(turned) + 0.1 * torch.randn(24)

    def __getitem__(self, i):
        return self.view(self.profile[i]), self.view(self.profile[i]), self.kind[i]


class SimCLR(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 16, 5, padding=2, padding_mode="circular"),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, width, 5, padding=2, padding_mode="circular"),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.project = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16))

    def forward(self, view):
        return F.normalize(self.project(self.encoder(view.unsqueeze(1))), dim=1)


def nt_xent(a, b, temperature=0.2):
    z = torch.cat([a, b])
    n = len(a)
    similarity = z @ z.T / temperature
    similarity = similarity.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(similarity, partner)


def probe(model, train, test):
    """A linear classifier on frozen features."""
    model.eval()
    features = []
    with torch.no_grad():
        for loader in (train, test):
            parts = [(model.encoder(a.unsqueeze(1)), kind) for a, _, kind in loader]
            features.append([torch.cat(column) for column in zip(*parts, strict=True)])
    model.train()
    (x, y), (x_test, y_test) = features
    head = nn.Linear(x.shape[1], 4)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(head(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        return (head(x_test).argmax(1) == y_test).float().mean().item()


def main():
    torch.manual_seed(71)
    np.random.seed(71)
    train = DataLoader(Shapes(256, seed=1), batch_size=32, shuffle=True, drop_last=True)
    test = DataLoader(Shapes(64, seed=2, jitter=False), batch_size=32)
    model = SimCLR()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for epoch in range(3):
        for first, second, _ in train:
            a, b = model(first), model(second)
            loss = nt_xent(a, b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{epoch}: loss {loss.item():.3f} probe {probe(model, train, test):.2f}")


if __name__ == "__main__":
    main()
