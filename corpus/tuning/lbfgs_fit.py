"""Decay curves of several samples fitted at once: all rows in every step, a closure, L-BFGS with a line search."""

import torch
from torch import nn

SAMPLES, TIMES = 12, 40


class Decays(nn.Module):
    """Height, rate and floor of every sample; logarithms where only positive numbers make sense."""

    def __init__(self):
        super().__init__()
        self.log_height = nn.Parameter(torch.zeros(SAMPLES, 1))
        self.log_rate = nn.Parameter(torch.zeros(SAMPLES, 1))
        self.floor = nn.Parameter(torch.zeros(SAMPLES, 1))

    def forward(self, t):
        return self.log_height.exp() * torch.exp(-self.log_rate.exp() * t) + self.floor


def measure(seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 5, TIMES).expand(SAMPLES, TIMES)
    height = 1 + torch.rand(SAMPLES, 1, generator=g)
    rate = 0.4 + torch.rand(SAMPLES, 1, generator=g)
    curve = height * torch.exp(-rate * t) + 0.2
    return t, curve + 0.02 * torch.randn(curve.shape, generator=g), rate


def main():
    torch.manual_seed(4)
    t, y, true_rate = measure(seed=4)
    seen = torch.ones_like(y, dtype=torch.bool)
    seen[:, ::5] = False
    model = Decays()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=8, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (model(t) - y)[seen].square().mean()
        loss.backward()
        return loss

    for step in range(8):
        loss = optimizer.step(closure)
        with torch.no_grad():
            hidden = (model(t) - y)[~seen].square().mean().item()
        print(f"step {step}: seen {loss.item():.5f}, left out {hidden:.5f}")
    with torch.no_grad():
        off = (model.log_rate.exp() - true_rate).abs().mean().item()
    print(f"rates off by {off:.3f}")


if __name__ == "__main__":
    main()
