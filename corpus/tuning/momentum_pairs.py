"""Contrastive learning of seismograms without labels: a momentum encoder and a queue of keys, judged by neighbours."""

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Options:
    records: int = 1024
    batch_size: int = 32
    queue: int = 256
    epochs: int = 5
    momentum: float = 0.98
    temperature: float = 0.2
    lr: float = 2e-3
    seed: int = 9


def seismograms(count, seed, length=48, kinds=5):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, kinds, (count,), generator=g)
    t = torch.linspace(0, 1, length)
    pitch = 3 + 2.5 * kind[:, None] + 0.5 * torch.randn(count, 1, generator=g)
    start = 0.3 * torch.rand(count, 1, generator=g)
    wave = torch.sin(2 * math.pi * pitch * (t - start)) * torch.exp(-3 * (t - start).clamp(min=0)) * (t > start)
    return (1.5 * wave + 0.15 * torch.randn(count, length, generator=g)).unsqueeze(1), kind


def view(records):
    """A record seen again: moved in time, louder or softer, with other noise."""
    moved = torch.stack([r.roll(int(torch.randint(-6, 7, ())), dims=-1) for r in records])
    loud = 0.7 + 0.6 * torch.rand(len(records), 1, 1)
    return loud * moved + 0.2 * torch.randn_like(moved)


class Encoder(nn.Module):
    def __init__(self, width=24, out=16):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(1, width, 7, padding=3), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(width, width, 5, padding=2), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten()),
        )
        self.project = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, out))

    def forward(self, records):
        return F.normalize(self.project(self.body(records)), dim=1)


class Contrast(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.query = Encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(options.queue, 16), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def keys_of(self, records):
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.mul_(self.options.momentum).add_(fast, alpha=1 - self.options.momentum)
        return self.key(records)

    @torch.no_grad()
    def enqueue(self, keys):
        at = int(self.at)
        self.queue[at : at + len(keys)] = keys
        self.at.fill_((at + len(keys)) % len(self.queue))

    def forward(self, one, other):
        q, k = self.query(one), self.keys_of(other)
        positive = (q * k).sum(dim=1, keepdim=True)
        negative = q @ self.queue.clone().T
        logits = torch.cat([positive, negative], dim=1) / self.options.temperature
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        self.enqueue(k)
        return loss


@torch.no_grad()
def neighbours(encoder, known, known_kind, asked, asked_kind):
    """Accuracy of the vote of five nearest records."""
    encoder.eval()
    bank = torch.cat([encoder.body(part) for part in known.split(256)])
    found = torch.cat([encoder.body(part) for part in asked.split(256)])
    nearest = torch.cdist(found, bank).topk(5, largest=False).indices
    vote = known_kind[nearest].mode(dim=1).values
    encoder.train()
    return (vote == asked_kind).float().mean().item()


def main(options=Options()):  # noqa: B008
    torch.manual_seed(options.seed)
    records, kind = seismograms(options.records, seed=1)
    asked, asked_kind = seismograms(200, seed=2)
    model = Contrast(options)
    optimizer = torch.optim.AdamW(model.query.parameters(), lr=options.lr, weight_decay=1e-4)
    print(f"untrained: {neighbours(model.query, records, kind, asked, asked_kind):.3f}")
    for epoch in range(options.epochs):
        total = 0.0
        for rows in torch.randperm(len(records)).split(options.batch_size):
            batch = records[rows]
            loss = model(view(batch), view(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        accuracy = neighbours(model.query, records, kind, asked, asked_kind)
        print(f"epoch {epoch}: loss {total / len(records):.3f}, neighbours {accuracy:.3f}")


if __name__ == "__main__":
    main()
