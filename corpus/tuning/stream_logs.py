"""Attacks in an endless log: an iterable data set shared out to workers, hashed words, one yes or no for each line."""

import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SLOTS, LENGTH = 64, 6


def line(number, salt):
    """The words of a line in the log and whether it is an attack."""
    rng = random.Random(number * 7919 + salt)
    attack = rng.random() < 0.4
    words = [rng.randrange(1, SLOTS) for _ in range(LENGTH)]
    if attack:
        words[rng.randrange(LENGTH)] = 7
        words[rng.randrange(LENGTH)] = 13
    return words, float(attack)


class Log(IterableDataset):
    def __init__(self, lines, salt, drop=0.0):
        super().__init__()
        self.lines, self.salt, self.drop = lines, salt, drop

    def mine(self):
        worker = get_worker_info()
        if worker is None:
            return range(self.lines)
        return range(worker.id, self.lines, worker.num_workers)

    def __iter__(self):
        for number in self.mine():
            words, attack = line(number, self.salt)
            kept = [word if random.random() >= self.drop else 0 for word in words]
            yield torch.tensor(kept), torch.tensor(attack)


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.words = nn.Embedding(SLOTS, width, padding_idx=0)
        self.register_buffer("place", torch.linspace(0.5, 1.5, LENGTH)[:, None])
        self.mix = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.attack = nn.Linear(width, 1)

    def forward(self, words):
        x = (self.words(words) * self.place).sum(dim=1)
        x = torch.relu(self.norm(self.mix(x)))
        return self.attack(x).squeeze(-1)


def score(detector, loader):
    detector.eval()
    right = lines = 0
    with torch.no_grad():
        for words, attack in loader:
            guess = (detector(words) > 0).float()
            right += (guess == attack).sum().item()
            lines += len(attack)
    detector.train()
    return right / lines


def main():
    random.seed(200)
    torch.manual_seed(200)
    train = DataLoader(Log(640, salt=1, drop=0.1), batch_size=32, num_workers=2)
    test = DataLoader(Log(150, salt=2), batch_size=32)
    detector = Detector()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(detector.parameters(), lr=1e-2)
    for epoch in range(2):
        total = torch.zeros(())
        for words, attack in train:
            loss = criterion(detector(words), attack)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"pass {epoch}: loss {total.item() / 20:.3f}, right {score(detector, test):.3f}")


if __name__ == "__main__":
    main()
