"""Six activities from windows of a wrist sensor: an engine object, rare classes drawn more often, accumulation."""

import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

ACTIVITIES = ["sit", "stand", "walk", "run", "climb", "cycle"]


@dataclass
class Settings:
    seed: int = 31
    batch: int = 12
    accumulate: int = 3
    updates: int = 24
    warmup: int = 5
    lr: float = 4e-3
    decay: float = 0.02
    clip: float = 0.4


class WristWindows(Dataset):
    """Rows of 36 readings; a class is a rhythm and a strength."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        odds = torch.tensor([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
        self.target = torch.multinomial(odds, count, replacement=True, generator=g)
        t = torch.arange(36) / 36
        speed = (1 + self.target)[:, None]
        phase = 0.6 * torch.rand(count, 1, generator=g)
        self.readings = torch.sin(2 * math.pi * (speed * t + phase)) * (0.4 + 0.2 * speed)
        self.readings += 0.25 * torch.randn(count, 36, generator=g)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, i):
        return {"readings": self.readings[i], "target": self.target[i]}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.5))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        h = self.b(nn.functional.silu(self.a(self.norm(x))))
        return x + self.gain * self.drop(h)


class Net(nn.Module):
    def __init__(self, width=40, depth=3):
        super().__init__()
        self.stem = nn.Linear(36, width)
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(depth)])
        self.head = nn.Linear(width, len(ACTIVITIES))

    def forward(self, readings):
        return self.head(self.blocks(self.stem(readings)))


@dataclass
class Engine:
    cfg: Settings
    net: nn.Module
    history: list = field(default_factory=list)
    done: int = 0

    def __post_init__(self):
        heavy = [p for p in self.net.parameters() if p.ndim >= 2]
        light = [p for p in self.net.parameters() if p.ndim < 2]
        groups = [{"params": heavy, "weight_decay": self.cfg.decay}, {"params": light, "weight_decay": 0.0}]
        self.opt = torch.optim.AdamW(groups, lr=self.cfg.lr)
        self.ramp = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda n: min(1.0, n / self.cfg.warmup))
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

    def fit(self, loader, val):
        self.net.train()
        while self.done < self.cfg.updates:
            micro = []
            for sample in loader:
                micro.append(sample)
                if len(micro) == self.cfg.accumulate:
                    self.update(micro)
                    micro = []
            self.report(val)

    def update(self, micro):
        self.opt.zero_grad()
        total = 0.0
        for sample in micro:
            out = self.net(sample["readings"])
            loss = self.loss_fn(out, sample["target"]) / len(micro)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.cfg.clip)
        self.opt.step()
        self.ramp.step()
        self.done += 1
        self.history.append(total)

    @torch.inference_mode()
    def report(self, val):
        self.net.eval()
        table = torch.zeros(6, 6, dtype=torch.long)
        for sample in val:
            guess = self.net(sample["readings"]).argmax(dim=1)
            for truth, said in zip(sample["target"].tolist(), guess.tolist(), strict=True):
                table[truth, said] += 1
        self.net.train()
        print(f"{self.done:3d} updates  loss {self.history[-1]:.3f}  hit rate {table.trace() / table.sum():.3f}")


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    data = WristWindows(288, seed=1)
    share = torch.bincount(data.target, minlength=6).clamp(min=1)
    sampler = WeightedRandomSampler((1.0 / share)[data.target], num_samples=len(data))
    loader = DataLoader(data, batch_size=cfg.batch, sampler=sampler)
    val = DataLoader(WristWindows(90, seed=2), batch_size=30)
    engine = Engine(cfg, Net())
    engine.fit(loader, val)
    torch.save({"net": engine.net.state_dict(), "opt": engine.opt.state_dict(), "done": engine.done}, "wrist.pt")


if __name__ == "__main__":
    main()
