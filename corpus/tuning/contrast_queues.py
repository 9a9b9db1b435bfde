"""Signals told apart without labels: a queue of negatives and a slow encoder that follows, judged by neighbours."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

KINDS, LENGTH = 6, 32


class Signals(Dataset):
    """Two views of a signal, each with its own noise and gain; the kind is for the judgement only."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        shapes = torch.randn(KINDS, LENGTH, generator=torch.Generator().manual_seed(0))
        self.kinds = torch.randint(KINDS, (count,), generator=g)
        self.signals = shapes[self.kinds] + 0.9 * torch.randn(count, LENGTH, generator=g)

    def __len__(self):
        return len(self.kinds)

    def view(self, signal):
        gain = 0.8 + 0.4 * torch.rand(1)
        kept = (torch.rand(LENGTH) > 0.15).float()
        return gain * signal * kept + 0.1 * torch.randn(LENGTH)

    def __getitem__(self, index):
        signal = self.signals[index]
        return self.view(signal), self.view(signal)


class MoCo(nn.Module):
    def __init__(self, width=48, out=16, queue=128, momentum=0.95, temperature=0.2):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        self.encoder_q = nn.Sequential(
            nn.Linear(LENGTH, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, out)
        )
        self.encoder_k = copy.deepcopy(self.encoder_q)
        for p in self.encoder_k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(out, queue), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k.data = k.data * self.momentum + q.data * (1.0 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        start = int(self.pointer)
        self.queue[:, start : start + len(keys)] = keys.T
        self.pointer[0] = (start + len(keys)) % self.queue.shape[1]

    def forward(self, one, two):
        q = F.normalize(self.encoder_q(one), dim=1)
        with torch.no_grad():
            self.follow()
            order = torch.randperm(len(two))
            k = F.normalize(self.encoder_k(two[order]), dim=1)
            k = k[torch.argsort(order)]
        positive = (q * k).sum(dim=1, keepdim=True)
        negative = q @ self.queue.clone().detach()
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        labels = torch.zeros(len(logits), dtype=torch.long)
        self.enqueue(k)
        return logits, labels


@torch.no_grad()
def neighbours(model, memory, queries):
    """The kind of the nearest known signal, as it is without any augmentation."""
    model.eval()
    known = F.normalize(model.encoder_q(memory.signals), dim=1)
    asked = F.normalize(model.encoder_q(queries.signals), dim=1)
    guess = memory.kinds[(asked @ known.T).argmax(dim=1)]
    return (guess == queries.kinds).float().mean().item()


def main():
    torch.manual_seed(31)
    train_set, test_set = Signals(384, seed=1), Signals(100, seed=2)
    loader = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)
    model = MoCo()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5 * len(loader))
    print(f"before: neighbours {neighbours(model, train_set, test_set):.3f}")
    for epoch in range(5):
        model.train()
        total = 0.0
        for one, two in loader:
            logits, labels = model(one, two)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} neighbours {neighbours(model, train_set, test_set):.3f}")
    torch.save(model.encoder_q.state_dict(), "encoder.pt")


if __name__ == "__main__":
    main()
