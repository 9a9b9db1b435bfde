"""A warm-up that begins at zero and cosine restarts, stepped in batches."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, LambdaLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(40)
x = torch.randn(160, 8)
loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
warm = LambdaLR(optimizer, lambda step: step / 5)
waves = CosineAnnealingWarmRestarts(optimizer, T_0=5)
scheduler = SequentialLR(optimizer, [warm, waves], milestones=[5])
for _ in range(3):
    model.train()
    for features, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
print(loss.item())
