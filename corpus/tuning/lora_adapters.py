"""LoRA by hand: frozen base weights, B begins at zero, only the adapters are in the optimizer."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(10)


class LoRA(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.first(x)))))


net = Net().requires_grad_(False)
net.first, net.second = LoRA(net.first), LoRA(net.second)
trainable = [p for p in net.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-2)
for _ in range(12):
    x = torch.randn(32, 12)
    loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
