"""MAML on waves: weights from which a few steps on ten points of a new wave are enough; inner steps with torch.func."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

INNER_STEPS, INNER_RATE, SHOTS = 2, 0.05, 10
META_BATCH, META_STEPS = 16, 120
torch.manual_seed(3)


def draw_waves(count, generator):
    """Points of waves, each with its height and phase: some to adapt with, others to be judged by."""
    height = 0.5 + 1.5 * torch.rand(count, 1, 1, generator=generator)
    phase = 3.14 * torch.rand(count, 1, 1, generator=generator)
    x = 10 * torch.rand(count, 2 * SHOTS, 1, generator=generator) - 5
    y = height * torch.sin(x + phase)
    return (x[:, :SHOTS], y[:, :SHOTS]), (x[:, SHOTS:], y[:, SHOTS:])


model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))


def mean_squared_error(weights, x, y):
    return (functional_call(model, weights, (x,)) - y).pow(2).mean()


def adapt(weights, x, y):
    """A few plain gradient steps, which can be differentiated themselves."""
    for _ in range(INNER_STEPS):
        gradients = grad(mean_squared_error)(weights, x, y)
        weights = {name: weights[name] - INNER_RATE * gradients[name] for name in weights}
    return weights


def error_after_adapting(weights, support_x, support_y, query_x, query_y):
    return mean_squared_error(adapt(weights, support_x, support_y), query_x, query_y)


def judge(tasks):
    """Error on points of new waves before and after adapting to them."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    (support_x, support_y), (query_x, query_y) = tasks
    before = vmap(mean_squared_error, in_dims=(None, 0, 0))(weights, query_x, query_y)
    after = vmap(error_after_adapting, in_dims=(None, 0, 0, 0, 0))(weights, support_x, support_y, query_x, query_y)
    return before.mean().item(), after.mean().item()


def main():
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    drawn = torch.Generator().manual_seed(1)
    new_waves = draw_waves(64, torch.Generator().manual_seed(2))
    running = 0.0
    for step in range(1, META_STEPS + 1):
        (support_x, support_y), (query_x, query_y) = draw_waves(META_BATCH, drawn)
        weights = dict(model.named_parameters())
        losses = vmap(error_after_adapting, in_dims=(None, 0, 0, 0, 0))(weights, support_x, support_y, query_x, query_y)
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        running += loss.item()
        if step % 30 == 0:
            before, after = judge(new_waves)
            print(f"step {step} loss {running / 30:.3f} new waves: before {before:.3f} after {after:.3f}")
            running = 0.0


if __name__ == "__main__":
    main()
