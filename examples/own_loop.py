import torch
from torch import nn

import surefoot

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with surefoot.watch(model, optimizer) as seen:
    for _ in range(5):
        features, labels = torch.randn(64, 4), torch.randint(0, 2, (64,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()

print(seen.tally.total("memory"), "bytes at the peak of the last step")
print(seen.tally.total("flops"), "FLOPs")
print(seen.findings.findings)
