"""Signatures compared by distance: an encoder of pen strokes, triplets of two writers, verified on new writers."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS, BATCH, STEPS = 24, 24, 60


def sign(style, rng):
    """A stroke of two sines; the style is the writer's, the rest is the day's."""
    t = np.linspace(0, 2 * np.pi, POINTS)
    phase = style["phase"] + rng.normal(0, 0.15)
    x = np.sin(style["fast"] * t + phase) + 0.1 * rng.normal(size=POINTS)
    y = style["tilt"] * np.cos(style["slow"] * t) + 0.1 * rng.normal(size=POINTS)
    return np.stack([x, y], axis=1).astype(np.float32)


def writers(count, each, seed):
    rng = np.random.default_rng(seed)
    books = []
    for _ in range(count):
        style = {
            "fast": rng.uniform(1, 4),
            "slow": rng.uniform(0.5, 3),
            "phase": rng.uniform(0, 3),
            "tilt": rng.uniform(-1.2, 1.2),
        }
        books.append([sign(style, rng) for _ in range(each)])
    return books


class Triplets(Dataset):
    def __init__(self, books, jitter=0.05):
        self.books, self.jitter = books, jitter
        self.places = [(w, k) for w, book in enumerate(books) for k in range(len(book))]

    def __len__(self):
        return len(self.places)

    def _read(self, writer, k):
        stroke = torch.from_numpy(self.books[writer][k])
        return stroke + self.jitter * torch.randn(stroke.shape)

    def __getitem__(self, i):
        writer, k = self.places[i]
        book = self.books[writer]
        other = (k + 1 + int(torch.randint(len(book) - 1, ()))) % len(book)
        stranger = (writer + 1 + int(torch.randint(len(self.books) - 1, ()))) % len(self.books)
        unlike = int(torch.randint(len(self.books[stranger]), ()))
        return self._read(writer, k), self._read(writer, other), self._read(stranger, unlike)


class Encoder(nn.Module):
    def __init__(self, width=24, code=12):
        super().__init__()
        self.strokes = nn.Sequential(
            nn.Conv1d(2, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.1)
        self.code = nn.Linear(width, code)

    def forward(self, stroke):
        x = self.strokes(stroke.transpose(1, 2)).mean(dim=2)
        return nn.functional.normalize(self.code(self.drop(self.norm(x))), dim=1)


def pairs(books):
    """As many pairs of one writer as of two."""
    left, right, same = [], [], []
    for w, book in enumerate(books):
        stranger = books[(w + 1) % len(books)]
        for k in range(len(book) - 1):
            left += [book[k], book[k]]
            right += [book[k + 1], stranger[k]]
            same += [True, False]
    return torch.from_numpy(np.stack(left)), torch.from_numpy(np.stack(right)), torch.tensor(same)


def verified(encoder, known, fresh):
    """A threshold is chosen on known writers and judged on fresh ones."""
    encoder.eval()
    with torch.no_grad():
        left, right, same = pairs(known)
        distance = (encoder(left) - encoder(right)).norm(dim=1)
        threshold = (distance[same].mean() + distance[~same].mean()) / 2
        left, right, same = pairs(fresh)
        distance = (encoder(left) - encoder(right)).norm(dim=1)
        score = ((distance < threshold) == same).float().mean().item()
    encoder.train()
    return score


def endless(loader):
    while True:
        yield from loader


torch.manual_seed(17)
known, fresh = writers(24, each=8, seed=1), writers(10, each=6, seed=2)
loader = DataLoader(Triplets(known), batch_size=BATCH, shuffle=True, drop_last=True)
encoder = Encoder()
criterion = nn.TripletMarginLoss(margin=0.5)
optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
stream, step = endless(loader), 0
encoder.train()
while step < STEPS:
    anchor, positive, negative = next(stream)
    a, p, n = encoder(anchor), encoder(positive), encoder(negative)
    loss = criterion(a, p, n)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}, verified {verified(encoder, known, fresh):.2f}")
