"""A small U-Net with a sum of cross-entropy and Dice loss."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(21)


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep, self.up = block(1, 8), block(8, 16), block(24, 8)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        high = self.down(x)
        low = self.deep(F.max_pool2d(high, 2))
        return self.head(self.up(torch.cat([high, F.interpolate(low, scale_factor=2)], dim=1)))


def batch(size):
    grid = torch.arange(32.0)
    middle, radius = torch.randint(8, 24, (2, size, 1, 1)), torch.randint(3, 8, (size, 1, 1))
    masks = ((grid[:, None] - middle[0]) ** 2 + (grid - middle[1]) ** 2 < radius**2).float()[:, None]
    return masks + 0.7 * torch.randn(size, 1, 32, 32), masks


model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(updates):
    x, masks = batch(8)
    scores = model(x)
    chances = scores.sigmoid()
    dice = 1 - (2 * (chances * masks).sum() + 1) / (chances.sum() + masks.sum() + 1)
    loss = F.binary_cross_entropy_with_logits(scores, masks) + dice
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            x, masks = batch(32)
            found = model(x) > 0
            both = (found & masks.bool()).sum() / (found | masks.bool()).sum()
        print(step, loss.item(), dice.item(), both.item())
        model.train()
