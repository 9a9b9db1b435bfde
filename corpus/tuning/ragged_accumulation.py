"""Accumulates ragged micro-batches rightly: sums of losses over the tokens of the whole step."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(44)
VOCAB, PAD = 24, -100


class Tiny(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(VOCAB, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def micro_batch():
    rows = (torch.randint(0, VOCAB, (6, 1)) + torch.arange(12)) % VOCAB
    targets = rows[:, 1:].clone()
    lengths = torch.randint(2, 12, (6, 1))
    targets[torch.arange(11) >= lengths] = PAD
    return rows[:, :-1], targets


model = Tiny()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(10):
    window = [micro_batch() for _ in range(3)]
    count = sum((targets != PAD).sum() for _, targets in window)
    optimizer.zero_grad()
    for tokens, targets in window:
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum") / count
        loss.backward()
    optimizer.step()
print(loss.item())
