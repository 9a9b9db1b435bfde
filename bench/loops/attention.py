"""nn.MultiheadAttention over sets, with padding, evaluated on its fast path."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(10)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(4, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x, padding):
        h = self.inside(x)
        h = h + self.attention(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        kept = (~padding).float()[..., None]
        return self.head((h * kept).sum(1) / kept.sum(1))[:, 0]


def batch(size):
    x = torch.randn(size, 9, 4)
    padding = torch.arange(9) >= torch.randint(3, 10, (size, 1))
    return x, padding, x[..., 0].masked_fill(padding, -9).amax(1)


model = Pooled()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(updates):
    x, padding, y = batch(48)
    loss = F.mse_loss(model(x, padding), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.inference_mode():
            x, padding, y = batch(128)
            print(step, loss.item(), F.mse_loss(model(x, padding), y).item())
        model.train()
