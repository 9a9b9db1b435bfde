"""Rings of coloured beads with chords: how often neighbours are alike, by a message-passing network and Lion."""

import random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

COLOURS, CLASSES = 4, 3


class Graph(NamedTuple):
    colours: torch.Tensor
    edges: torch.Tensor
    label: int


class Batch(NamedTuple):
    colours: torch.Tensor
    edges: torch.Tensor
    owner: torch.Tensor
    labels: torch.Tensor


def make_ring(chance):
    size = chance.randint(8, 16)
    liking = chance.choice([0.05, 0.45, 0.85])
    colours = [chance.randrange(COLOURS)]
    for _ in range(size - 1):
        same = chance.random() < liking
        colours.append(colours[-1] if same else (colours[-1] + chance.randint(1, 3)) % COLOURS)
    pairs = {(i, (i + 1) % size) for i in range(size)}
    for _ in range(size // 4):
        one, two = chance.sample(range(size), 2)
        if (two, one) not in pairs:
            pairs.add((one, two))
    alike = sum(colours[i] == colours[j] for i, j in pairs) / len(pairs)
    edges = torch.tensor([*pairs, *((j, i) for i, j in pairs)]).t()
    return Graph(torch.tensor(colours), edges, 0 if alike < 0.25 else 1 if alike < 0.6 else 2)


def make_rings(count, seed):
    chance = random.Random(seed)
    return [make_ring(chance) for _ in range(count)]


def merge(graphs):
    """Many graphs as one, the nodes numbered on."""
    colours, edges, owner, before = [], [], [], 0
    for number, graph in enumerate(graphs):
        colours.append(graph.colours)
        edges.append(graph.edges + before)
        owner.append(torch.full((len(graph.colours),), number))
        before += len(graph.colours)
    labels = torch.tensor([graph.label for graph in graphs])
    return Batch(torch.cat(colours), torch.cat(edges, dim=1), torch.cat(owner), labels)


class Message(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own = nn.Parameter(torch.ones(width))
        self.pair = nn.Linear(2 * width, width)
        self.update = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, edges):
        start, end = edges
        sent = torch.relu(self.pair(torch.cat([x[start], x[end]], dim=1)))
        heard = torch.zeros_like(x).index_add(0, end, sent)
        degree = torch.bincount(end, minlength=len(x)).clamp(min=1).unsqueeze(1)
        return x + self.update(self.norm(self.own * x + heard / degree))


class RingNet(nn.Module):
    def __init__(self, width=24, rounds=3):
        super().__init__()
        self.colour = nn.Embedding(COLOURS, width)
        self.rounds = nn.ModuleList([Message(width) for _ in range(rounds)])
        self.dropout = nn.Dropout(0.1)
        self.label = nn.Linear(width, CLASSES)

    def forward(self, batch):
        x = self.colour(batch.colours)
        for message in self.rounds:
            x = message(x, batch.edges)
        size = torch.bincount(batch.owner).unsqueeze(1)
        pooled = torch.zeros(len(size), x.shape[1]).index_add(0, batch.owner, x) / size
        return F.log_softmax(self.label(self.dropout(pooled)), dim=1)


class Lion(torch.optim.Optimizer):
    """Steps by the sign of an interpolated momentum."""

    def __init__(self, params, lr, betas=(0.9, 0.98), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            fast, slow = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                direction = momentum.lerp(p.grad, 1 - fast).sign_()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(direction, alpha=-group["lr"])
                momentum.lerp_(p.grad, 1 - slow)


def evaluate(model, graphs, size=32):
    model.eval()
    lost = right = 0
    with torch.no_grad():
        for start in range(0, len(graphs), size):
            batch = merge(graphs[start : start + size])
            chances = model(batch)
            lost += F.nll_loss(chances, batch.labels, reduction="sum").item()
            right += (chances.argmax(1) == batch.labels).sum().item()
    return lost / len(graphs), right / len(graphs)


def main(epochs=6, size=24):
    torch.manual_seed(23)
    rings = make_rings(320, seed=3)
    train_rings, test_rings = rings[:240], rings[240:]
    chance = random.Random(4)
    model = RingNet()
    opt = Lion(model.parameters(), lr=2e-3, weight_decay=0.01)
    for epoch in range(epochs):
        model.train()
        chance.shuffle(train_rings)
        for start in range(0, len(train_rings), size):
            batch = merge(train_rings[start : start + size])
            opt.zero_grad()
            chances = model(batch)
            loss = F.nll_loss(chances, batch.labels)
            loss.backward()
            opt.step()
        print("epoch {}: loss {:.3f}, right {:.3f}".format(epoch, *evaluate(model, test_rings)))


if __name__ == "__main__":
    main()
