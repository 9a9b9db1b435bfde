"""Weather of tomorrow from the days before: matrices by an orthogonalised momentum, all the rest by AdamW."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR


class Orthogonal(torch.optim.Optimizer):
    """Momentum whose matrices are brought near to orthogonal ones by a few Newton-Schulz steps (Muon)."""

    def __init__(self, params, lr=0.02, momentum=0.9, rounds=4):
        super().__init__(params, {"lr": lr, "momentum": momentum, "rounds": rounds})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].mul_(group["momentum"]).add_(p.grad)
                update = self.orthogonal(p.grad + group["momentum"] * state["momentum"], group["rounds"])
                p.sub_(group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5 * update)

    @staticmethod
    def orthogonal(m, rounds):
        x = m / (m.norm() + 1e-7)
        for _ in range(rounds):
            square = x @ x.T
            x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
        return x


class Forecast(nn.Module):
    def __init__(self, days=12, width=32):
        super().__init__()
        self.month = nn.Embedding(12, 8)
        self.inlet = nn.Linear(days + 8, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(3))
        self.outlet = nn.Linear(width, 1)

    def forward(self, days, month):
        x = self.inlet(torch.cat([days, self.month(month)], dim=1))
        for block in self.blocks:
            x = x + F.gelu(block(x))
        return self.outlet(x).squeeze(1)


def weather(count, seed):
    """Windows of twelve days and the change to the next one: season, and weather that stays for days."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(count + 12, generator=g).tolist()
    anomaly, temperatures = 0.0, []
    for day, shock in enumerate(noise):
        anomaly = 0.8 * anomaly + shock
        season = -10 * torch.cos(torch.tensor(2 * torch.pi * (day % 360) / 360)).item()
        temperatures.append(10 + season + anomaly)
    series = (torch.tensor(temperatures) - 10) / 7.5
    windows = series.unfold(0, 13, 1)
    month = (torch.arange(len(windows)) + 12) % 360 // 30
    return windows[:, :12], month, windows[:, 12] - windows[:, 11]


def groups(model):
    """Matrices inside of the network; tables, first and last layer, biases and norms."""
    inner = [p for p in model.blocks.parameters() if p.dim() == 2]
    known = {id(p) for p in inner}
    return inner, [p for p in model.parameters() if id(p) not in known]


torch.manual_seed(60)
train, valid = weather(1024, seed=61), weather(340, seed=62)
model = Forecast()
inner, others = groups(model)
assert len(inner) + len(others) == len(list(model.parameters()))
matrices = Orthogonal(inner, lr=0.02)
rest = torch.optim.AdamW(others, lr=3e-3, weight_decay=0.01)
epochs, batch = 6, 32
steps = epochs * len(train[0]) // batch
schedules = [CosineAnnealingLR(matrices, steps), LambdaLR(rest, lambda s: min(1.0, (s + 1) / 20))]

for epoch in range(epochs):
    model.train()
    for rows in torch.randperm(len(train[0])).split(batch):
        days, month, change = (part[rows] for part in train)
        loss = F.huber_loss(model(days, month), change, delta=0.5)
        for optimizer in (matrices, rest):
            optimizer.zero_grad()
        loss.backward()
        matrices.step()
        rest.step()
        for schedule in schedules:
            schedule.step()
    model.eval()
    with torch.no_grad():
        off = (model(*valid[:2]) - valid[2]).abs().mean().item()
    print(f"{epoch}: rates {matrices.param_groups[0]['lr']:.4f} {rest.param_groups[0]['lr']:.4f}, {7.5 * off:.2f} °C")
