"""A graph network on one graph: the same full batch in every step, nodes that see one another, a mask for training."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(20)
NODES = 60
group = torch.randint(0, 3, (NODES,))
edges = (torch.rand(NODES, NODES) < 0.05 + 0.25 * (group[:, None] == group[None, :])).float()
adjacency = ((edges + edges.T + torch.eye(NODES)) > 0).float()
adjacency = adjacency / adjacency.sum(1, keepdim=True)
features = torch.randn(NODES, 8)
in_training = torch.rand(NODES) < 0.6


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, adjacency):
        h = self.dropout(F.relu(self.first(adjacency @ x)))
        return self.second(adjacency @ h)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
for epoch in range(20):
    model.train()
    optimizer.zero_grad()
    out = model(features, adjacency)
    loss = F.cross_entropy(out[in_training], group[in_training])
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        model.eval()
        with torch.no_grad():
            right = (model(features, adjacency).argmax(1) == group)[~in_training].float().mean()
        print(epoch, loss.item(), right.item())
