"""Trains skip-gram word vectors with negative sampling; names no device.

Needs numpy.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(0)
torch.manual_seed(0)
VOCAB, DIM, WINDOW, NEGATIVES = 20_000, 100, 4, 8

corpus = (rng.zipf(1.2, 20_000) - 1) % VOCAB
counts = np.bincount(corpus, minlength=VOCAB).astype(np.float64)
noise = torch.tensor(counts**0.75 / (counts**0.75).sum())


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Embedding(VOCAB, DIM)
        self.context = nn.Embedding(VOCAB, DIM)
        self.centre.weight.data.uniform_(-0.5 / DIM, 0.5 / DIM)
        self.context.weight.data.zero_()

    def forward(self, centre, context, negatives):
        v = self.centre(centre)
        good = (v * self.context(context)).sum(-1)
        bad = torch.bmm(self.context(negatives), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(good) + F.logsigmoid(-bad).sum(1)).mean()


def pairs(size):
    at = rng.integers(WINDOW, len(corpus) - WINDOW, size)
    shift = rng.integers(1, WINDOW + 1, size) * rng.choice([-1, 1], size)
    return torch.from_numpy(corpus[at]), torch.from_numpy(corpus[at + shift])


model = SkipGram()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for step in range(12):
    centre, context = pairs(1024)
    negatives = torch.multinomial(noise, 1024 * NEGATIVES, replacement=True).view(1024, NEGATIVES)
    loss = model(centre, context, negatives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(f"step {step:3d}  loss {loss.item():.4f}")

with torch.no_grad():
    vectors = F.normalize(model.centre.weight)
    nearest = (vectors[:5] @ vectors.T).topk(4, dim=1).indices
print(nearest.numpy())
