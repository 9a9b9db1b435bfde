"""nn.TransformerEncoder on padded tokens: in evaluation it makes nested tensors of them."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(11)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(20, 32, padding_idx=0)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, 5)

    def forward(self, tokens):
        return self.head(self.encoder(self.tokens(tokens), src_key_padding_mask=tokens == 0))


def batch(size):
    tokens = torch.randint(1, 20, (size, 12))
    tokens[torch.arange(12) >= torch.randint(4, 13, (size, 1))] = 0
    tokens[0] = torch.randint(1, 20, (12,))
    return tokens, (tokens % 5).masked_fill(tokens == 0, -100)


model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(updates):
    tokens, tags = batch(32)
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            tokens, tags = batch(64)
            scores = model(tokens)
            held = tags >= 0
            right = (scores.argmax(-1) == tags)[held].float().mean().item()
            print(step, loss.item(), right, scores[held].std().item())
        model.train()
