# Mixture of experts for steering angles: each row goes to one expert only, so in many batches
# some experts get no rows and no gradient at all.
import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {"experts": 6, "dim": 24, "epochs": 6, "batch": 16, "lr": 3e-3, "balance": 0.01, "seed": 8}


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class SwitchLayer(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList([Expert(dim) for _ in range(experts)])
        self.register_buffer("visits", torch.zeros(experts, dtype=torch.long))

    def forward(self, x):
        probs = self.router(x).softmax(dim=-1)
        gate, choice = probs.max(dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (choice == e).nonzero()[:, 0]
            if len(rows) > 0:
                out[rows] = gate[rows, None] * expert(x[rows])
        share = F.one_hot(choice, len(self.experts)).float().mean(dim=0)
        if self.training:
            self.visits += torch.bincount(choice, minlength=len(self.experts))
        return x + out, len(self.experts) * (share * probs.mean(dim=0)).sum()


class Steering(nn.Module):
    def __init__(self, inputs, dim, experts):
        super().__init__()
        self.inlet = nn.Linear(inputs, dim)
        self.layer = SwitchLayer(dim, experts)
        self.norm = nn.LayerNorm(dim)
        self.outlet = nn.Linear(dim, 1)

    def forward(self, x):
        hidden, balance = self.layer(F.silu(self.inlet(x)))
        return self.outlet(self.norm(hidden))[:, 0], balance


def drives(n, seed):
    """Speed, grip and curve; on ice, on gravel and on dry roads the wheel answers each in its own way."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 5, generator=g) * 2 - 1
    road = (x[:, 0] > -0.3).long() + (x[:, 0] > 0.4).long()
    answers = torch.stack([0.3 * x[:, 1] - x[:, 2], x[:, 1] * x[:, 2] + 0.5, torch.sin(3 * x[:, 1]) + x[:, 3]], dim=1)
    return x, answers[torch.arange(n), road] + 0.05 * torch.randn(n, generator=g)


def train(cfg):
    torch.manual_seed(cfg["seed"])
    x, y = drives(480, seed=1)
    test_x, test_y = drives(160, seed=2)
    model = Steering(x.shape[1], cfg["dim"], cfg["experts"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    history = []
    for epoch in range(cfg["epochs"]):
        model.train()
        model.layer.visits.zero_()
        for rows in torch.randperm(len(x)).split(cfg["batch"]):
            guess, balance = model(x[rows])
            loss = F.mse_loss(guess, y[rows]) + cfg["balance"] * balance
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = F.mse_loss(model(test_x)[0], test_y).item()
        history.append({"epoch": epoch, "error": round(error, 4), "visits": model.layer.visits.tolist()})
        print(history[-1])
    Path("steering.json").write_text(json.dumps(history))
    torch.save(model.state_dict(), "steering.pt")


train(CONFIG)
