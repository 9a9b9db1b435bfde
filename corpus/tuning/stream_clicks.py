"""Clicks on advertisements from a stream of log files, read by two workers: hashed columns, half precision, Adagrad."""

import contextlib
import hashlib
import itertools
import json
import random
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BUCKETS, FILES, LINES = 64, 6, 160
FIELDS = ("site", "device", "topic")


def write_logs(folder, files, seed):
    rng = random.Random(seed)
    for number in range(files):
        with open(folder / f"part-{seed}-{number:02d}.jsonl", "w") as out:
            for _ in range(LINES):
                site, topic = rng.randrange(20), rng.randrange(8)
                row = {"site": f"s{site}", "device": rng.choice(["phone", "desk"]), "topic": f"t{topic}"}
                row["age"], row["price"] = rng.randrange(18, 80), round(rng.lognormvariate(3, 1), 2)
                odds = 1.5 * (site % 3 == topic % 3) - 0.05 * (row["age"] - 45) + (row["device"] == "phone") - 0.8
                row["click"] = int(odds + rng.gauss(0, 0.4) > 0)
                out.write(json.dumps(row) + "\n")


def bucket(field, value):
    return int(hashlib.md5(f"{field}={value}".encode()).hexdigest(), 16) % BUCKETS


class Clicks(IterableDataset):
    def __init__(self, paths, shuffle=0):
        self.paths, self.shuffle = sorted(paths), shuffle

    def lines(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for path in self.paths[first::step]:
            with open(path) as log:
                yield from map(json.loads, log)

    def __iter__(self):
        kept = []
        for row in self.lines():
            kept.append(self.encode(row))
            if len(kept) > self.shuffle:
                at = int(torch.randint(len(kept), ())) if self.shuffle else 0
                yield kept.pop(at)
        for at in torch.randperm(len(kept)).tolist() if self.shuffle else range(len(kept)):
            yield kept[at]

    def encode(self, row):
        hashed = torch.tensor([bucket(field, row[field]) for field in FIELDS])
        numbers = torch.tensor([(row["age"] - 48) / 18, (torch.tensor(row["price"]).log() - 3).item()])
        return hashed, numbers, torch.tensor(float(row["click"]))


class ClickNet(torch.nn.Module):
    def __init__(self, width=12, hidden=32):
        super().__init__()
        self.tables = torch.nn.ModuleList([torch.nn.Embedding(BUCKETS, width) for _ in FIELDS])
        for table in self.tables:
            torch.nn.init.normal_(table.weight, std=0.1)
        self.mix = torch.nn.Linear(len(FIELDS) * width + 2, hidden)
        self.norm = torch.nn.LayerNorm(hidden)
        self.odds = torch.nn.Linear(hidden, 1)

    def forward(self, hashed, numbers):
        found = [table(column) for table, column in zip(self.tables, hashed.unbind(dim=1), strict=False)]
        x = torch.cat([*found, numbers], dim=1)
        return self.odds(self.norm(self.mix(x)).relu()).flatten()


class Adagrad(torch.optim.Optimizer):
    """Written out, so that the sums of squares can be looked at."""

    def __init__(self, params, lr=0.05, eps=1e-8):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["squares"] = torch.full_like(p, 0.1)
                state["squares"].addcmul_(p.grad, p.grad)
                p.addcdiv_(p.grad, state["squares"].sqrt().add_(group["eps"]), value=-group["lr"])


@torch.no_grad()
def assess(model, loader):
    """Share of right guesses, and the mean loss of all rows."""
    model.eval()
    right, nats, rows = 0, 0.0, 0
    for hashed, numbers, click in loader:
        odds = model(hashed, numbers)
        right += ((odds.sigmoid() > 0.5) == click.bool()).sum().item()
        nats += torch.nn.functional.binary_cross_entropy_with_logits(odds, click, reduction="sum").item()
        rows += len(click)
    model.train()
    return right / rows, nats / rows


def main(folder):
    torch.manual_seed(70)
    write_logs(folder, FILES, seed=1)
    write_logs(folder, 1, seed=2)
    stream = DataLoader(Clicks(folder.glob("part-1-*.jsonl"), shuffle=200), batch_size=40, num_workers=2)
    later = DataLoader(Clicks(folder.glob("part-2-*.jsonl")), batch_size=64)
    model = ClickNet().train()
    optimizer = Adagrad(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    criterion = torch.nn.BCEWithLogitsLoss()
    steps = itertools.count(1)
    for reading in range(2):
        for hashed, numbers, click in stream:
            step = next(steps)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                odds = model(hashed, numbers)
            loss = criterion(odds.float(), click)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            if step % 12 == 0:
                right, nats = assess(model, later)
                print(f"step {step}: loss {loss.item():.3f}, later {nats:.3f}, {right:.1%} right")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "clicks.pt")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(KeyboardInterrupt):
        main(Path(place))
