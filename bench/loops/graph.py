"""A graph network on one graph, with masks of training and test nodes."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(22)
labels = torch.randint(0, 3, (120,))
near = (labels[:, None] == labels).float() * 0.15 + 0.01
edges = (torch.rand(120, 120) < near).float()
edges = ((edges + edges.T + torch.eye(120)) > 0).float()
degrees = edges.sum(1).rsqrt()
matrix = (degrees[:, None] * edges * degrees).to_sparse()
features = torch.randn(120, 16) + F.one_hot(labels, 16) * 0.5
training = torch.rand(120) < 0.5


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 3)

    def forward(self, x):
        x = F.relu(torch.sparse.mm(matrix, self.one(x)))
        return torch.sparse.mm(matrix, self.two(F.dropout(x, 0.5, self.training)))


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
for step in range(updates):
    model.train()
    loss = F.cross_entropy(model(features)[training], labels[training])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            found = model(features).argmax(1)
        print(step, loss.item(), (found == labels)[~training].float().mean().item())
