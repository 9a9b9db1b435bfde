"""A start from which a few steps fit any bend: inner steps by hand with their graph, an outer Adam."""

import torch
from torch import nn
from torch.func import functional_call

INNER_RATE, INNER_STEPS, TASKS, SHOTS = 0.05, 2, 4, 10


def bend(g):
    """A parabola of its own for each task."""
    a, b = torch.rand(2, generator=g) * 2 - 1

    def points(count):
        x = torch.rand(count, 1, generator=g) * 4 - 2
        return x, a * x**2 + b * x

    return points


def adapt(net, params, x, y, first_order=False):
    for _ in range(INNER_STEPS):
        loss = nn.functional.mse_loss(functional_call(net, params, (x,)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=not first_order)
        params = {name: p - INNER_RATE * g for (name, p), g in zip(params.items(), grads, strict=True)}
    return params


def score(net, count=20, seed=900):
    """Mean error on new bends after adapting to a few of their points."""
    g = torch.Generator().manual_seed(seed)
    errors = []
    for _ in range(count):
        points = bend(g)
        (x, y), (x_new, y_new) = points(SHOTS), points(30)
        start = {name: p.detach().requires_grad_() for name, p in net.named_parameters()}
        fitted = adapt(net, start, x, y, first_order=True)
        with torch.no_grad():
            errors.append(nn.functional.mse_loss(functional_call(net, fitted, (x_new,)), y_new).item())
    return sum(errors) / len(errors)


if __name__ == "__main__":
    torch.manual_seed(14)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    outer = torch.optim.Adam(net.parameters(), lr=5e-3)
    chance = torch.Generator().manual_seed(15)
    print(f"before {score(net):.3f}")
    for step in range(60):
        outer.zero_grad()
        total = 0.0
        for _ in range(TASKS):
            points = bend(chance)
            (x, y), (x_query, y_query) = points(SHOTS), points(SHOTS)
            fitted = adapt(net, dict(net.named_parameters()), x, y)
            loss = nn.functional.mse_loss(functional_call(net, fitted, (x_query,)), y_query) / TASKS
            loss.backward()
            total += loss.item()
        outer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: query error {total:.3f}, new bends {score(net):.3f}")
