"""A physics-informed network: derivatives by autograd inside the loss, the same collocation points in every step."""

import torch
from torch import nn

torch.manual_seed(23)
net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
points = torch.rand(64, 2, requires_grad=True)
edge = torch.cat([torch.rand(32, 1), torch.zeros(32, 1)], dim=1)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(15):
    u = net(points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
    residual = first[:, 1] - 0.1 * second[:, 0]
    boundary = net(edge) - torch.sin(3.1416 * edge[:, :1])
    loss = residual.pow(2).mean() + boundary.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
