"""Names of rivers, letter by letter: an LSTM over padded names that end with a stop, batches made by hand."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PAD, START, STOP = 0, 1, 2
LETTERS = "abcdefghiklmnorstuv"
SYLLABLES = ["ta", "ri", "no", "vel", "da", "mis", "or", "ka", "lu", "ben"]


def encode(name):
    return torch.tensor([START] + [3 + LETTERS.index(letter) for letter in name] + [STOP])


def rivers(count, seed):
    """So many different names, in a fixed order."""
    rng = random.Random(seed)
    names = {}
    while len(names) < count:
        names["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4)))] = None
    return [encode(name) for name in names]


class NameModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(3 + len(LETTERS), width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(width, 3 + len(LETTERS))

    def forward(self, letters):
        h = self.embed(letters)
        h, _ = self.lstm(h)
        return self.out(h)


def in_batches(names, size, rng):
    rng.shuffle(names)
    for i in range(0, len(names), size):
        padded = pad_sequence(names[i : i + size], batch_first=True, padding_value=PAD)
        yield padded[:, :-1], padded[:, 1:]


def perplexity(model, names, criterion):
    model.eval()
    nats = letters = 0
    with torch.no_grad():
        for inputs, targets in in_batches(list(names), 20, random.Random(0)):
            count = (targets != PAD).sum().item()
            nats += criterion(model(inputs).transpose(1, 2), targets).item() * count
            letters += count
    return 2.718 ** (nats / letters)


def sample(model):
    model.eval()
    letters = [START]
    with torch.no_grad():
        while letters[-1] != STOP and len(letters) < 15:
            scores = model(torch.tensor([letters]))[0, -1]
            letters.append(torch.distributions.Categorical(logits=scores).sample().item())
    return "".join(LETTERS[i - 3] if i > 2 else "." for i in letters[1:])


random.seed(4)
torch.manual_seed(4)
names = rivers(310, seed=1)
train_names, test_names = names[:260], names[260:]
model = NameModel()
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
shuffler = random.Random(9)
for epoch in range(3):
    model.train()
    for inputs, targets in in_batches(train_names, 20, shuffler):
        logits = model(inputs)
        loss = criterion(logits.transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    print(epoch, loss.item(), perplexity(model, test_names, criterion), sample(model))
