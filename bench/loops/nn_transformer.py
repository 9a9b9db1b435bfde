"""nn.Transformer that reverses a sequence, evaluated on its fast path."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(9)


class Reverser(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(14, 32), nn.Parameter(0.1 * torch.randn(12, 32))
        self.body = nn.Transformer(32, 2, 1, 1, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 14)

    def forward(self, source, target, padding):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        source, target = (self.tokens(each) + self.places[: each.shape[1]] for each in (source, target))
        return self.head(self.body(source, target, tgt_mask=mask, src_key_padding_mask=padding))


def batch(size):
    source = torch.randint(3, 14, (size, 10))
    padding = torch.arange(10) >= torch.randint(6, 11, (size, 1))
    source[padding] = 0
    begins = torch.ones(size, 1, dtype=torch.long)
    return source, torch.cat([begins, source.flip(1)], dim=1), padding


model = Reverser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(updates):
    source, target, padding = batch(24)
    scores = model(source, target[:, :-1], padding)
    loss = F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        model.eval()
        with torch.no_grad():
            source, target, padding = batch(64)
            scores = model(source, target[:, :-1], padding)
            print(step, loss.item(), scores.sum().item(), scores.std().item())
        model.train()
