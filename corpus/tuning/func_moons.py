"""Two moons in the functional style: parameters in a dict, gradients of each sample by vmap, clipped one by one."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap


def moons(count, key):
    g = torch.Generator().manual_seed(key)
    side = torch.randint(0, 2, (count,), generator=g)
    angle = math.pi * torch.rand(count, generator=g)
    x = torch.where(side == 0, angle.cos(), 1 - angle.cos())
    y = torch.where(side == 0, angle.sin(), 0.5 - angle.sin())
    points = torch.stack([x, y], dim=1) + 0.1 * torch.randn(count, 2, generator=g)
    return points, side


def init(key, width=24):
    torch.manual_seed(key)
    net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
    return net, dict(net.named_parameters())


def loss_of_one(params, net, point, side):
    logits = functional_call(net, params, (point.unsqueeze(0),))
    return nn.functional.cross_entropy(logits, side.unsqueeze(0))


def clipped_mean(grads, limit):
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    scale = (limit / norms.clamp(min=1e-6)).clamp(max=1.0)
    return {name: torch.einsum("n,n...->...", scale, g) / len(scale) for name, g in grads.items()}


def main():
    points, sides = moons(256, key=1)
    test_points, test_sides = moons(64, key=2)
    net, params = init(key=3)
    optimizer = torch.optim.SGD(params.values(), lr=0.5, momentum=0.8)
    per_sample = vmap(grad_and_value(loss_of_one), in_dims=(None, None, 0, 0))
    for epoch in range(4):
        order = torch.randperm(len(points))
        for rows in order.split(32):
            frozen = {name: p.detach() for name, p in params.items()}
            grads, losses = per_sample(frozen, net, points[rows], sides[rows])
            mean = clipped_mean(grads, limit=1.0)
            for name, p in params.items():
                p.grad = mean[name]
            optimizer.step()
        with torch.no_grad():
            guess = functional_call(net, params, (test_points,)).argmax(dim=1)
            right = (guess == test_sides).float().mean().item()
        print(f"{epoch} loss {losses.mean().item():.3f} right {right:.3f}")


if __name__ == "__main__":
    main()
