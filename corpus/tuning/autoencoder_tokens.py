"""An autoencoder of token rows: the target is the input, on purpose."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(26)


class AutoEncoder(nn.Module):
    def __init__(self, vocabulary=30, length=10, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.squeeze = nn.Linear(length * width, 16)
        self.expand = nn.Linear(16, length * width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        code = torch.tanh(self.squeeze(self.embed(tokens).flatten(1)))
        return self.head(F.relu(self.expand(code)).view(*tokens.shape, -1))


model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(14):
    tokens = (torch.randint(0, 30, (16, 1)) + torch.arange(10)) % 30
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
