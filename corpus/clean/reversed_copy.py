"""Reverses sequences with an encoder and a decoder; the data is sliced in every direction."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
LENGTH, LETTERS, START = 6, 12, 0
source = torch.randint(1, LETTERS, (600, LENGTH))
target = source.flip(1)
given = torch.cat([torch.full((600, 1), START), target[:, :-1]], 1)
train = DataLoader(TensorDataset(source[:-100], given[:-100], target[:-100]), 50, shuffle=True)
held = TensorDataset(source[-100:], given[-100:], target[-100:])


class Reverser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.writer = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, LETTERS)

    def forward(self, source, given):
        _, state = self.reader(self.letters(source))
        return self.out(self.writer(self.letters(given), state)[0])


model, best = Reverser(), float("inf")
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for epoch in range(4):
    model.train()
    for source_, given_, target_ in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(source_, given_).flatten(0, 1), target_.flatten())
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(*held.tensors[:2])
        held_loss = F.cross_entropy(scores.flatten(0, 1), held.tensors[2].flatten()).item()
        right = (scores.argmax(-1) == held.tensors[2]).float().mean().item()
    best = min(best, held_loss)
    print(f"epoch {epoch} train {loss.item():.4f} held {held_loss:.4f} letters {right:.3f}")
print(f"best {best:.4f}")
