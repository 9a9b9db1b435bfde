"""Domain adaptation: a layer that reverses gradients on purpose, in a custom backward."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(38)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -0.3 * gradient


features = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
classify, domain = nn.Linear(24, 3), nn.Linear(24, 2)
optimizer = torch.optim.Adam([*features.parameters(), *classify.parameters(), *domain.parameters()], lr=3e-3)
for _ in range(12):
    source, target = torch.randn(16, 8), torch.randn(16, 8) + 0.5
    h = features(torch.cat([source, target]))
    where = torch.cat([torch.zeros(16), torch.ones(16)]).long()
    loss = F.cross_entropy(classify(h[:16]), source[:, :3].argmax(1)) + F.cross_entropy(domain(Reverse.apply(h)), where)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
