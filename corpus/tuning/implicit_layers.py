"""A layer that is the solution of an equation: z = tanh(W z + u), with its gradient by implicit differentiation."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Equilibrium(Function):
    """The fixed point for each row of u; backward solves the linear equation of the implicit function theorem."""

    @staticmethod
    def forward(ctx, weight: Tensor, u: Tensor, tolerance: float, limit: int) -> Tensor:
        z = torch.zeros_like(u)
        for _ in range(limit):
            after = torch.tanh(z @ weight.T + u)
            change = (after - z).abs().max()
            z = after
            if change < tolerance:
                break
        ctx.save_for_backward(weight, z)
        ctx.tolerance, ctx.limit = tolerance, limit
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weight, z = ctx.saved_tensors
        slope = 1 - z * z
        g = grad
        for _ in range(ctx.limit):
            after = grad + (g * slope) @ weight
            change = (after - g).abs().max()
            g = after
            if change < ctx.tolerance:
                break
        grad_u = g * slope
        return grad_u.T @ z, grad_u, None, None


class Implicit(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inject = nn.Linear(inputs, width)
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        # rows of absolute sum below one make the map a contraction
        norm = self.weight.abs().sum(dim=1, keepdim=True)
        weight = 0.8 * self.weight / norm.clamp(min=1.0)
        return Equilibrium.apply(weight, self.inject(x), 1e-6, 100)


class Network(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.implicit = Implicit(inputs, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.implicit(x)).squeeze(1)


def potentials(count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Six currents into a circuit of nodes with saturating links; the voltage at one node is to be found."""
    links = np.random.default_rng(77).uniform(-0.22, 0.22, (6, 6))
    current = rng.normal(0, 1, (count, 6))
    voltage = np.zeros((count, 6))
    for _ in range(60):
        voltage = np.tanh(voltage @ links.T + current)
    wanted = voltage[:, 0] + voltage[:, 1] - voltage[:, 2] * voltage[:, 3]
    wanted = wanted + 0.05 * rng.normal(0, 1, count)
    return torch.tensor(current, dtype=torch.float32), torch.tensor(wanted, dtype=torch.float32)


def main() -> None:
    torch.manual_seed(21)
    rng = np.random.default_rng(22)
    x, y = potentials(640, rng)
    x_test, y_test = potentials(150, rng)
    model = Network(6, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    for epoch in range(8):
        model.train()
        order = torch.from_numpy(rng.permutation(len(x)))
        total = 0.0
        for rows in order.split(32):
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        scheduler.step()
        model.eval()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(x_test), y_test).item()
        print(f"epoch {epoch}: train {total / len(x):.4f}, test {error:.4f}")


if __name__ == "__main__":
    main()
