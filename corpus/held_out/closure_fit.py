"""Calibration of a pressure gauge with L-BFGS: the closure computes the loss over all readings, often in one step."""

import torch
from torch import nn

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)


def readings(count, seed):
    """Voltage and temperature of the gauge, and the pressure that a better one showed beside it."""
    g = torch.Generator().manual_seed(seed)
    volts = 5 * torch.rand(count, generator=g)
    degrees = 10 + 25 * torch.rand(count, generator=g)
    pressure = 2.1 * volts + 0.15 * volts**2 * torch.sin(volts) + 0.04 * (degrees - 20) * volts
    return torch.stack([volts, degrees], dim=1), pressure + 0.05 * torch.randn(count, generator=g)


class Gauge(nn.Module):
    """A straight line plus what a small network corrects of it."""

    def __init__(self, centre, spread, width=12):
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("spread", spread)
        self.line = nn.Linear(2, 1)
        self.bend = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.weigh = nn.Linear(width, 1, bias=False)

    def forward(self, x):
        x = (x - self.centre) / self.spread
        return (self.line(x) + self.weigh(self.bend(x))).squeeze(-1)


def main():
    train_x, train_y = readings(200, seed=1)
    test_x, test_y = readings(80, seed=2)
    gauge = Gauge(train_x.mean(dim=0), train_x.std(dim=0))
    optimizer = torch.optim.LBFGS(
        gauge.parameters(),
        lr=0.5,
        max_iter=10,
        history_size=20,
    )
    decay = 1e-4

    def penalised_error():
        error = (gauge(train_x) - train_y).pow(2).mean()
        return error + decay * sum(p.pow(2).sum() for name, p in gauge.named_parameters() if "weight" in name)

    def closure():
        optimizer.zero_grad()
        loss = penalised_error()
        loss.backward()
        return loss

    previous = float("inf")
    for step in range(20):
        loss = optimizer.step(closure).item()  # the loss before this step
        with torch.no_grad():
            test_error = (gauge(test_x) - test_y).pow(2).mean().sqrt().item()
        print(f"step {step} loss {loss:.5f} test error {test_error:.4f} bar")
        if abs(previous - loss) < 1e-7:
            break
        previous = loss
    torch.save(gauge.state_dict(), "gauge.pt")


if __name__ == "__main__":
    main()
