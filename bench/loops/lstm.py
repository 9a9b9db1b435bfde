"""An LSTM that tells whether a sequence of tokens holds more of one than of another."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(4)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 2)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.lstm(packed)[1][0][-1])


def batch(size):
    rows = [torch.randint(1, 12, (int(torch.randint(5, 25, ())),)) for _ in range(size)]
    labels = torch.tensor([int((row == 1).sum() > (row == 2).sum()) for row in rows])
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows]), labels


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(updates):
    tokens, lengths, labels = batch(32)
    loss = F.cross_entropy(model(tokens, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
model.eval()
with torch.no_grad():
    tokens, lengths, labels = batch(256)
    print("accuracy", (model(tokens, lengths).argmax(1) == labels).float().mean().item())
