"""Heights and slopes of waves, fitted by a net of sines: parameters in a dict, gradients by torch.autograd.grad."""

import math

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

OMEGA, KEY, STEPS, BATCH, LIMIT = 4.0, 40, 120, 32, 1.0


def wave(x):
    return np.sin(2.5 * x) + 0.4 * np.cos(5.0 * x), 2.5 * np.cos(2.5 * x) - 2.0 * np.sin(5.0 * x)


def measured(count, key):
    """Places between -1 and 1, heights with noise, and slopes."""
    rng = np.random.default_rng(key)
    x = rng.uniform(-1, 1, count)
    height, slope = wave(x)
    return {
        "x": x.astype(np.float32),
        "height": (height + rng.normal(0, 0.05, count)).astype(np.float32),
        "slope": slope.astype(np.float32),
    }


class SineFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(OMEGA * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * OMEGA * torch.cos(OMEGA * x)


class Sine(nn.Module):
    def forward(self, x):
        return SineFunction.apply(x)


class Descent(torch.optim.Optimizer):
    """Momentum, with a rate that falls as the cosine says."""

    def __init__(self, params, lr, momentum, steps):
        super().__init__(params, {"lr": lr, "momentum": momentum, "steps": steps, "count": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            rate = group["lr"] * 0.5 * (1 + math.cos(math.pi * group["count"] / group["steps"]))
            for p in group["params"]:
                if p.grad is None:
                    continue
                speed = self.state[p].setdefault("speed", torch.zeros_like(p))
                speed.mul_(group["momentum"]).add_(p.grad)
                p.add_(speed, alpha=-rate)
            group["count"] += 1


def make(key, width=32):
    torch.manual_seed(key)
    net = nn.Sequential(nn.Linear(1, width), Sine(), nn.Linear(width, width), Sine(), nn.Linear(width, 1))
    for layer in (net[2], net[4]):
        bound = math.sqrt(6 / width) / OMEGA
        nn.init.uniform_(layer.weight, -bound, bound)
    return net, dict(net.named_parameters())


def rows_at(data, step):
    rows = np.random.default_rng(KEY + step).choice(len(data["x"]), BATCH, replace=False)
    return {name: torch.from_numpy(values[rows]) for name, values in data.items()}


def noise_at(x, step):
    return 0.02 * torch.randn(x.shape, generator=torch.Generator().manual_seed(KEY + step))


def objective(net, params, batch, step):
    x = (batch["x"] + noise_at(batch["x"], step)).unsqueeze(1).requires_grad_()
    height = functional_call(net, params, (x,))
    slope = torch.autograd.grad(height.sum(), x, create_graph=True)[0]
    error = (height.squeeze(1) - batch["height"]).square().mean()
    return error + 0.05 * (slope.squeeze(1) - batch["slope"]).square().mean(), error.detach()


def limited(grads):
    norm = torch.stack([g.norm() for g in grads]).norm()
    return [g * min(1.0, LIMIT / (norm.item() + 1e-6)) for g in grads]


def held_out(net, params, data):
    with torch.no_grad():
        guess = functional_call(net, params, (torch.from_numpy(data["x"]).unsqueeze(1),)).squeeze(1)
        return (guess - torch.from_numpy(data["height"])).square().mean().item()


train, held = measured(512, key=1), measured(100, key=2)
net, params = make(key=3)
optimizer = Descent(params.values(), lr=0.02, momentum=0.9, steps=STEPS)
for step in range(STEPS):
    loss, error = objective(net, params, rows_at(train, step), step)
    grads = limited(torch.autograd.grad(loss, list(params.values())))
    for p, g in zip(params.values(), grads, strict=True):
        p.grad = g
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1}: error {error.item():.4f}, held out {held_out(net, params, held):.4f}")
