"""Pictures squeezed through bits: rounded forward, gradients straight through backward, by a function of its own."""

import torch
from torch import nn


class StraightThrough(torch.autograd.Function):
    """A step forward, the identity backward, inside the clipping range."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype) * 2 - 1

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1).to(grad.dtype)


class BitCoder(nn.Module):
    def __init__(self, bits=10):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(25, 32), nn.ReLU(), nn.Linear(32, bits))
        self.decode = nn.Sequential(nn.Linear(bits, 32), nn.ReLU(), nn.Linear(32, 25))

    def forward(self, pictures):
        bits = StraightThrough.apply(self.encode(pictures))
        return self.decode(bits)


def crosses(count, seed):
    g = torch.Generator().manual_seed(seed)
    pictures = 0.05 * torch.randn(count, 5, 5, generator=g)
    for picture in pictures:
        row, column = torch.randint(5, (2,), generator=g).tolist()
        picture[row] += 1
        picture[:, column] += 1
    return pictures.flatten(1)


torch.manual_seed(309)
train, test = crosses(300, seed=1), crosses(50, seed=2)
coder = BitCoder()
optimizer = torch.optim.Adam(coder.parameters(), lr=4e-3)
for step in range(45):
    pictures = train[torch.randint(len(train), (30,))]
    loss = nn.functional.mse_loss(coder(pictures), pictures)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(f"train {loss.item():.4f} test {nn.functional.mse_loss(coder(test), test).item():.4f}")
