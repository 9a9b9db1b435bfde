"""Glazes of tiles from a kiln's record: trained in two sittings with a checkpoint between, and a shadow of weights."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GLAZES, SENSORS = 4, 12
UPDATES, PAUSE = 60, 30


def firings(count, seed):
    g = torch.Generator().manual_seed(seed)
    glaze = torch.randint(GLAZES, (count,), generator=g)
    curve = torch.linspace(0, 3, SENSORS)[None] * (0.6 + 0.4 * glaze[:, None])
    record = torch.sin(curve + 0.3 * torch.randn(count, 1, generator=g)) + 0.2 * torch.randn(
        count, SENSORS, generator=g
    )
    return TensorDataset(record, glaze)


class Scale(nn.Module):
    """Subtracts a slow mean of what it has seen in training."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("square", torch.ones(size))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(dim=0), 0.1)
            self.square.lerp_(x.detach().square().mean(dim=0), 0.1)
        return (x - self.mean.clone()) / (self.square - self.mean.square()).clamp(min=1e-2).sqrt()


class KilnNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.scale = Scale(SENSORS)
        self.body = nn.Sequential(
            nn.Linear(SENSORS, width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.glaze = nn.Linear(width, GLAZES)

    def forward(self, record):
        return self.glaze(self.body(self.scale(record)))


class Session:
    def __init__(self, path):
        self.path = path
        self.net = KilnNet()
        self.shadow = {k: v.clone() for k, v in self.net.state_dict().items()}
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=6e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, UPDATES)
        self.update = 0
        if os.path.exists(path):
            self.restore()

    def keep(self):
        kept = {
            "net": self.net.state_dict(),
            "shadow": self.shadow,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "update": self.update,
            "random": torch.get_rng_state(),
        }
        torch.save(kept, self.path)

    def restore(self):
        kept = torch.load(self.path)
        self.net.load_state_dict(kept["net"])
        self.shadow = kept["shadow"]
        self.optimizer.load_state_dict(kept["optimizer"])
        self.schedule.load_state_dict(kept["schedule"])
        self.update = kept["update"]
        torch.set_rng_state(kept["random"])

    def follow(self):
        for name, value in self.net.state_dict().items():
            self.shadow[name].lerp_(value, 0.1)

    def train(self, loader, until):
        self.net.train()
        while self.update < until:
            for record, glaze in loader:
                loss = nn.functional.cross_entropy(self.net(record), glaze)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.follow()
                self.update += 1
                if self.update == until:
                    break

    def judge(self):
        net = KilnNet()
        net.load_state_dict(self.shadow)
        return net.eval()


def right(net, data):
    record, glaze = data.tensors
    with torch.no_grad():
        return (net(record).argmax(1) == glaze).float().mean().item()


def sitting(path, until):
    torch.manual_seed(70)
    session = Session(path)
    session.train(DataLoader(firings(300, seed=1), batch_size=20, shuffle=True), until)
    session.keep()
    judge = session.judge()
    print(f"after {session.update}: {right(judge, firings(80, seed=2)):.3f} right")
    return judge


with tempfile.TemporaryDirectory() as folder:
    sitting(os.path.join(folder, "kiln.pt"), PAUSE)
    served = sitting(os.path.join(folder, "kiln.pt"), UPDATES)
