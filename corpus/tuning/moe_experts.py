"""A mixture of experts, of which some see no token in a step: their gradients stay None."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(14)


class Mixture(nn.Module):
    def __init__(self, width=16, experts=8):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(experts)])
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        weights = F.softmax(self.gate(x), dim=-1)
        share, chosen = weights.max(dim=-1)
        out = torch.zeros_like(x)
        for index in chosen.unique().tolist():
            rows = (chosen == index).nonzero().squeeze(1)
            out = out.index_add(0, rows, share[rows, None] * F.relu(self.experts[index](x[rows])))
        return self.head(x + out)


model = Mixture()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(12):
    x = torch.randn(12, 16)
    loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
