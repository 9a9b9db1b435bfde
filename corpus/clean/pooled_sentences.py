"""Sentences without attention: embeddings of real tokens are averaged and convolved; a mask says which are real."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, random_split

torch.manual_seed(5)
WORDS, PAD = 60, 0


def collate(samples):
    longest = max(len(tokens) for tokens, _ in samples)
    tokens = torch.full((len(samples), longest), PAD)
    for row, (each, _) in enumerate(samples):
        tokens[row, : len(each)] = each
    return tokens, tokens != PAD, torch.tensor([label for _, label in samples])


class Sentences(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.near = nn.Conv1d(width, width, 3, padding=1)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, tokens, mask):
        found = self.words(tokens)
        weights = mask.float()[..., None]
        mean = (found * weights).sum(1) / weights.sum(1)
        near = F.relu(self.near(found.transpose(1, 2))).transpose(1, 2) * weights
        return self.out(torch.cat([mean, near.amax(1)], 1))


def sentence():
    label = int(torch.rand(()) < 0.5)
    length = int(torch.randint(3, 14, ()))
    tokens = torch.randint(1, 50, (length,))
    tokens[torch.rand(length) < 0.3] = 50 + label * 5 + 1
    return tokens, label


data = [sentence() for _ in range(500)]
train, held = random_split(data, [400, 100])
loaders = DataLoader(train, 25, shuffle=True, collate_fn=collate), DataLoader(held, 50, collate_fn=collate)
model = Sentences()
optimizer = torch.optim.Adam(model.parameters(), 2e-3)
for epoch in range(4):
    model.train()
    for tokens, mask, labels in loaders[0]:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens, mask), labels).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(tokens, mask).argmax(1) == labels).sum().item() for tokens, mask, labels in loaders[1])
    print(f"epoch {epoch} accuracy {right / len(held):.3f}")
