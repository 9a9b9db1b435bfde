"""Monte-Carlo dropout: only the dropout layers go back to training mode to measure uncertainty after training."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(36)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
model.train()
for _ in range(15):
    x = torch.randn(32, 6)
    loss = F.mse_loss(model(x), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
for module in model.modules():
    if isinstance(module, nn.Dropout):
        module.train()
with torch.no_grad():
    guesses = torch.stack([model(torch.zeros(4, 6)) for _ in range(5)])
print(guesses.mean().item(), guesses.std().item())
