"""Kinds of orbits by functions of parameters: torch.func, momentum by hand, a slow teacher that gives soft targets."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

KINDS, LOOKS, STEPS, BATCH = 3, 10, 60, 20
RATE, MOMENTUM, CLIP, SLOW = 0.1, 0.9, 0.5, 0.95


def orbits(count, seed):
    """Angles and distances at ten times; the kind is how the distance changes."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=g)
    time = torch.linspace(0, 1, LOOKS)[None] + torch.rand(count, 1, generator=g)
    pace = 2 + 2 * kind[:, None]
    away = torch.sin(pace * time) + 0.15 * torch.randn(count, LOOKS, generator=g)
    angle = torch.cos(time) + 0.15 * torch.randn(count, LOOKS, generator=g)
    return torch.cat([away, angle], dim=1), kind


class Gate(torch.autograd.Function):
    """x times its sigmoid."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class OrbitNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(2 * LOOKS, width)
        self.second = nn.Linear(width, width)
        self.kind = nn.Linear(width, KINDS)

    def forward(self, x):
        x = Gate.apply(self.first(x))
        x = Gate.apply(self.second(x))
        return self.kind(x)


def shaken(x):
    """A view with some noise."""
    return x + 0.1 * torch.randn_like(x)


def objective(model, params, teacher, x, kind):
    scores = functional_call(model, params, (shaken(x),))
    with torch.no_grad():
        belief = functional_call(model, teacher, (shaken(x),)).softmax(dim=1)
    told = F.cross_entropy(scores, kind)
    agree = F.kl_div(scores.log_softmax(dim=1), belief, reduction="batchmean")
    return told + 0.5 * agree


class Heavy(torch.optim.Optimizer):
    """Momentum by hand, the gradients limited together."""

    def __init__(self, params, rate):
        super().__init__(params, {"lr": rate})
        self.speed = {}

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in group["params"]]
        norm = torch.sqrt(sum(g.square().sum() for g in grads))
        limited = [g * (CLIP / (norm + 1e-6)).clamp(max=1.0) for g in grads]
        for p, g in zip(group["params"], limited, strict=True):
            speed = self.speed.setdefault(p, torch.zeros_like(p))
            speed.mul_(MOMENTUM).add_(g)
            p.sub_(group["lr"] * speed)


def right(model, params, x, kind):
    with torch.no_grad():
        return (functional_call(model, params, (x,)).argmax(dim=1) == kind).float().mean().item()


torch.manual_seed(88)
order = torch.Generator().manual_seed(88)
x, kind = orbits(300, seed=1)
x_test, kind_test = orbits(80, seed=2)
model = OrbitNet()
params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
teacher = {name: p.detach().clone() for name, p in params.items()}
optimizer = Heavy(params.values(), RATE)

for step in range(STEPS):
    rows = torch.randint(len(x), (BATCH,), generator=order)
    loss = objective(model, params, teacher, x[rows], kind[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.param_groups[0]["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / STEPS))
    optimizer.step()
    for name, slow in teacher.items():
        slow.mul_(SLOW).add_(params[name].detach(), alpha=1 - SLOW)
    if (step + 1) % 20 == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}, right {right(model, params, x_test, kind_test):.3f}")

model.load_state_dict(params)
