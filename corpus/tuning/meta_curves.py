"""MAML on curves: start weights from which a few points of a new sine wave are enough."""

import math

import torch
from torch.func import functional_call


class Curves:
    """Tasks: waves of random height and phase; support points to adapt by, query points to judge by."""

    def __init__(self, seed, support=10, query=15):
        self.g = torch.Generator().manual_seed(seed)
        self.support, self.query = support, query

    def draw(self):
        height = 0.5 + 2.0 * torch.rand((), generator=self.g)
        phase = math.pi * torch.rand((), generator=self.g)
        x = 5 * torch.rand(self.support + self.query, 1, generator=self.g) - 2.5
        y = height * torch.sin(x + phase)
        return x[: self.support], y[: self.support], x[self.support :], y[self.support :]


class MAML:
    def __init__(self, net, inner_lr=0.1, outer_lr=5e-3, tasks=4, inner_steps=1):
        self.net = net
        self.inner_lr, self.inner_steps, self.tasks = inner_lr, inner_steps, tasks
        self.meta = torch.optim.Adam(net.parameters(), lr=outer_lr)

    def loss(self, weights, x, y):
        return torch.nn.functional.mse_loss(functional_call(self.net, weights, (x,)), y)

    def adapted(self, x, y, steps, create_graph):
        weights = dict(self.net.named_parameters())
        for _ in range(steps):
            grads = torch.autograd.grad(self.loss(weights, x, y), list(weights.values()), create_graph=create_graph)
            weights = {k: w - self.inner_lr * g for (k, w), g in zip(weights.items(), grads, strict=True)}
        return weights

    def meta_step(self, curves):
        self.meta.zero_grad()
        total = 0.0
        for _ in range(self.tasks):
            xs, ys, xq, yq = curves.draw()
            weights = self.adapted(xs, ys, self.inner_steps, create_graph=True)
            loss = self.loss(weights, xq, yq) / self.tasks
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.meta.step()
        return total

    def judge(self, seed, tasks=20, steps=5):
        """Errors on curves never trained on, before and after steps of their own; needs gradients, leaves no trace."""
        curves = Curves(seed)
        before = after = 0.0
        for _ in range(tasks):
            xs, ys, xq, yq = curves.draw()
            weights = self.adapted(xs, ys, steps, create_graph=False)
            with torch.no_grad():
                before += self.loss(dict(self.net.named_parameters()), xq, yq).item() / tasks
                after += self.loss(weights, xq, yq).item() / tasks
        return before, after


def main():
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 40), torch.nn.Tanh(), torch.nn.Linear(40, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1)
    )
    learner, curves = MAML(net), Curves(seed=100)
    window = []
    for step in range(1, 201):
        window.append(learner.meta_step(curves))
        if step % 50 == 0:
            before, after = learner.judge(seed=200)
            mean = sum(window) / len(window)
            print(f"{step:4d}: query loss {mean:.3f}, new curves {before:.3f} -> {after:.3f}")
            window.clear()


if __name__ == "__main__":
    main()
