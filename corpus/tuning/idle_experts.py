"""A mixture of experts routed to the best one: some experts get no sample in a step, and so no gradient."""

import torch
from torch import nn
from torch.nn import functional as F


class Mixture(nn.Module):
    def __init__(self, width=16, experts=6):
        super().__init__()
        self.enter = nn.Linear(3, width)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(experts)]
        )
        self.leave = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.tanh(self.enter(x))
        gate = self.router(h).softmax(dim=-1)
        weight, chosen = gate.max(dim=-1)
        out = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().squeeze(1)
            if len(mine):
                out = out.index_add(0, mine, weight[mine, None] * expert(h[mine]))
        share = F.one_hot(chosen, len(self.experts)).float().mean(dim=0)
        balance = len(self.experts) * (share * gate.mean(dim=0)).sum()
        return self.leave(h + out).squeeze(-1), balance


def surface(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(count, 3, generator=g) - 1
    return x, torch.where(x[:, 0] > 0, x[:, 1].square(), torch.sin(3 * x[:, 2]))


def main():
    torch.manual_seed(305)
    (x, y), (x_test, y_test) = surface(400, 1), surface(80, 2)
    model = Mixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(40):
        rows = torch.randint(len(x), (16,))
        guess, balance = model(x[rows])
        loss = F.mse_loss(guess, y[rows]) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print("error", F.mse_loss(model(x_test)[0], y_test).item())


main()
