"""Trains initial weights by MAML on sine tasks, with torch.func: functional_call, grad and vmap over tasks."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, vmap

torch.manual_seed(0)
if torch.cuda.is_available():
    device = "cuda"
elif torch.backends.mps.is_available():
    device = "mps"
else:
    device = "cpu"

TASKS, SHOTS, INNER_LR, INNER_STEPS = 32, 16, 0.01, 3

net = nn.Sequential(nn.Linear(1, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).to(device)
params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}


def mse(params, x, y):
    return (functional_call(net, params, (x,)) - y).pow(2).mean()


def adapt(params, x, y):
    for _ in range(INNER_STEPS):
        grads = grad(mse)(params, x, y)
        params = {k: p - INNER_LR * grads[k] for k, p in params.items()}
    return params


def task_loss(params, x1, y1, x2, y2):
    return mse(adapt(params, x1, y1), x2, y2)


def batch_loss(params, *tasks):
    losses = vmap(task_loss, in_dims=(None, 0, 0, 0, 0))(params, *tasks)
    return losses.mean(), losses.detach()


def sample_tasks():
    amplitude = torch.rand(TASKS, 1, 1, device=device) * 4.9 + 0.1
    phase = torch.rand(TASKS, 1, 1, device=device) * math.pi
    out = []
    for _ in range(2):
        x = torch.rand(TASKS, SHOTS, 1, device=device) * 10 - 5
        out += [x, amplitude * torch.sin(x + phase)]
    return out


optimizer = torch.optim.Adam(list(params.values()), lr=1e-3)
for it in range(8):
    tasks = sample_tasks()
    grads, (loss, per_task) = grad_and_value(batch_loss, has_aux=True)(params, *tasks)
    optimizer.zero_grad()
    for k, p in params.items():
        p.grad = grads[k]
    optimizer.step()
    print(f"iteration {it}: loss {loss.item():.4f}, hardest task {per_task.max().item():.4f}")
