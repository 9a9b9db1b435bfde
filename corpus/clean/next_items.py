"""A recommender: a GRU reads the items that a person bought and predicts the next one."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
random.seed(0)
ITEMS, PAD = 40, 0


def person():
    length, at = random.randint(4, 12), random.randint(1, ITEMS - 1)
    items = [at]
    for _ in range(length):
        at = (at * 3 + random.choice([1, 1, 1, 2])) % (ITEMS - 1) + 1
        items.append(at)
    return items


people = sorted((person() for _ in range(400)), key=len)
train, held = people[::2], people[1::2]


def batches(people, size=20):
    groups = [people[at : at + size] for at in range(0, len(people), size)]
    random.shuffle(groups)
    for group in groups:
        inputs = pad_sequence([torch.tensor(items[:-1]) for items in group], batch_first=True, padding_value=PAD)
        targets = pad_sequence([torch.tensor(items[1:]) for items in group], batch_first=True, padding_value=PAD)
        yield inputs, targets, inputs != PAD


class Recommender(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width, padding_idx=PAD)
        self.reader, self.out = nn.GRU(width, width, batch_first=True), nn.Linear(width, ITEMS)

    def forward(self, items):
        return self.out(self.reader(self.items(items))[0])


model = Recommender()
optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
for epoch in range(4):
    model.train()
    for inputs, targets, real in batches(train):
        loss = F.cross_entropy(model(inputs)[real], targets[real])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    hits = seen = 0
    with torch.no_grad():
        for inputs, targets, real in batches(held):
            top = model(inputs).topk(5, -1).indices
            hits += ((top == targets[..., None]).any(-1) & real).sum().item()
            seen += real.sum().item()
    print(f"epoch {epoch} loss {loss.item():.3f} hit@5 {hits / seen:.3f}")
