"""Fine-tunes a head over a frozen body whose batch norm stays in evaluation mode on purpose."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(15)
body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
head = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 3))
body.requires_grad_(False)
kinds = torch.randn(3, 1, 8, 8)
labels = torch.randint(0, 3, (96,))
loader = DataLoader(TensorDataset(kinds[labels] + 0.3 * torch.randn(96, 1, 8, 8), labels), batch_size=16, shuffle=True)
model = nn.Sequential(body, head)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(2):
    model.train()
    body.eval()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
