"""Pictures squeezed into bits: a straight-through estimator passes gradients over the rounding."""

import torch
from torch import nn
from torch.nn import functional as F


class Round(torch.autograd.Function):
    """To zero or one; backward, as if nothing had been done."""

    @staticmethod
    def forward(ctx, x):
        return (x > 0.5).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class BitCoder(nn.Module):
    def __init__(self, bits=16):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(36, 48), nn.ReLU(), nn.Linear(48, bits))
        self.decode = nn.Sequential(nn.Linear(bits, 48), nn.ReLU(), nn.Linear(48, 36))

    def forward(self, x):
        bits = Round.apply(torch.sigmoid(self.encode(x.flatten(1))))
        return self.decode(bits).view_as(x), bits


def pictures(n, g):
    """Two crossing bars, somewhere."""
    x = torch.zeros(n, 6, 6)
    rows, cols = torch.randint(6, (2, n), generator=g)
    x[torch.arange(n), rows] = 1
    x[torch.arange(n), :, cols] = 1
    return x + 0.05 * torch.randn(n, 6, 6, generator=g)


def main():
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(12)
    coder = BitCoder()
    opt = torch.optim.Adam(coder.parameters(), lr=1e-2)
    for step in range(50):
        x = pictures(32, g)
        again, bits = coder(x)
        loss = F.mse_loss(again, x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            print(f"{step + 1}: {loss.item():.4f}, {bits.mean():.2f} of the bits are one")


main()
