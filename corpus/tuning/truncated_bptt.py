"""Truncated backpropagation through time: windows of four steps, one backward and update for each, state detached."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(37)
cell, head = nn.GRUCell(3, 20), nn.Linear(20, 1)
parameters = [*cell.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=5e-3)
series = torch.sin(torch.arange(200)[:, None] / torch.tensor([3.0, 5.0, 8.0])).unsqueeze(1).expand(-1, 8, -1)
series = series + 0.05 * torch.randn(200, 8, 3)
state = torch.zeros(8, 20)
for start in range(0, 48, 4):
    losses = []
    for t in range(start, start + 4):
        state = cell(series[t], state)
        losses.append(F.mse_loss(head(state), series[t + 1, :, :1]))
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    state = state.detach()
print(loss.item())
