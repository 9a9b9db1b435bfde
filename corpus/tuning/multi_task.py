"""Two tasks by turns: one body, two heads, of which each step trains one."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(32)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.heads = nn.ModuleDict({"kind": nn.Linear(32, 4), "size": nn.Linear(32, 1)})

    def forward(self, x, task):
        return self.heads[task](self.body(x))


model = TwoTasks()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(14):
    x = torch.randn(24, 10)
    if step % 2 == 0:
        loss = F.cross_entropy(model(x, "kind"), x[:, :4].argmax(1))
    else:
        loss = F.mse_loss(model(x, "size"), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
