"""Training and evaluation under bfloat16 autocast."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(12)
model = nn.Sequential(nn.Linear(32, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
centres = torch.randn(8, 32)
for step in range(updates):
    labels = torch.randint(0, 8, (64,))
    x = centres[labels] + torch.randn(64, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(centres)
        print(step, loss.item(), scores.dtype, scores.float().sum().item())
        model.train()
