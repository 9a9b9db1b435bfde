"""Waves learned from few points: an inner optimization for each task, an outer one through it, with torch.func."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

INNER_STEPS, TASKS, SHOTS = 2, 10, 8

torch.manual_seed(14)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
inner_rate = nn.Parameter(torch.tensor(0.05))
optimizer = torch.optim.Adam([*model.parameters(), inner_rate], lr=0.005)


def draw_tasks(count, generator=None):
    """Sine waves of some height and phase: points to adapt to, and others to be judged on."""
    height = 0.5 + 2 * torch.rand(count, 1, 1, generator=generator)
    phase = 3.14 * torch.rand(count, 1, 1, generator=generator)
    x = 6 * torch.rand(count, 2 * SHOTS, 1, generator=generator) - 3
    y = height * torch.sin(x + phase)
    return x[:, :SHOTS], y[:, :SHOTS], x[:, SHOTS:], y[:, SHOTS:]


def task_loss(weights, x, y):
    return (functional_call(model, weights, (x,)) - y).square().mean()


def adapt(weights, x, y):
    for _ in range(INNER_STEPS):
        slopes = grad(task_loss)(weights, x, y)
        weights = {name: w - inner_rate * slopes[name] for name, w in weights.items()}
    return weights


def adapted_loss(weights, x, y, x_query, y_query):
    return task_loss(adapt(weights, x, y), x_query, y_query)


def evaluate(tasks):
    """Errors before and after adapting; the network itself stays as it is."""
    weights = {name: w.detach() for name, w in model.named_parameters()}
    before = vmap(task_loss, in_dims=(None, 0, 0))(weights, tasks[2], tasks[3]).mean()
    after = vmap(adapted_loss, in_dims=(None, 0, 0, 0, 0))(weights, *tasks).mean()
    return before.item(), after.item()


held_out = draw_tasks(40, torch.Generator().manual_seed(2))
for iteration in range(60):
    weights = dict(model.named_parameters())
    losses = vmap(adapted_loss, in_dims=(None, 0, 0, 0, 0))(weights, *draw_tasks(TASKS))
    loss = losses.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    with torch.no_grad():
        inner_rate.clamp_(1e-3, 0.3)
    if (iteration + 1) % 15 == 0:
        before, after = evaluate(held_out)
        print(f"{iteration + 1}: loss {loss.item():.4f} before {before:.4f} after {after:.4f}")
torch.save({"model": model.state_dict(), "inner_rate": inner_rate.detach()}, "start.pt")
