"""Programs that tests of several rules about saved state share."""

import io
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import surefoot
from tests.checks.programs import X, Y, mlp, numbers, plain, whole


def saving(tmp: str, saved):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def save(step):
        if step == 2:
            torch.save(saved(model, optimizer), tmp)

    return plain(model, optimizer=optimizer, after=save)


def resumed(*, optimizer_back: bool, scheduler_back: bool):
    import io

    from torch.optim.lr_scheduler import StepLR

    model, file = mlp(), io.BytesIO()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, 2, 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        scheduler.step()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file
    )
    file.seek(0)
    with surefoot.watch() as seen:
        state = torch.load(file, weights_only=True)
        model = mlp()
        model.load_state_dict(state["model"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        if optimizer_back:
            optimizer.load_state_dict(state["optimizer"])
        scheduler = StepLR(optimizer, 2, 0.1)
        if scheduler_back:
            scheduler.load_state_dict(state["scheduler"])
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            scheduler.step()
    return seen.findings


DATA = TensorDataset(numbers(48, 4), whole(2, 48))


def update(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def kept(model, optimizer, **counters):
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **counters}, file)
    file.seek(0)
    return file


def put_back(file, model, optimizer):
    state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state


OTHER_X = torch.randn(64, 6, generator=torch.Generator().manual_seed(9))


def whole_state(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}


POINTS = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
SIDES = (POINTS[:, 0] > POINTS[:, 1]).long()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def adam(model, lr=1e-2):
    return torch.optim.Adam(model.parameters(), lr=lr)


def train(model, optimizer, steps=4, x=POINTS, y=SIDES) -> None:
    for _ in range(steps):
        rows = torch.randperm(len(x))[:16]
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


def through_a_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file)


def rate(step: int) -> float:
    return 1e-2 * min(1.0, (step + 1) / 2) * (1 + math.cos(math.pi * step / 10)) / 2


def by_hand(model, optimizer, first: int) -> None:
    for step in range(first, first + 4):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        train(model, optimizer, steps=1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def normed_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def saved(content) -> list[str]:
    model = normed_net()
    optimizer = adam(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            step(model, optimizer)
            torch.save(content(model, optimizer), io.BytesIO())
    return [each.check for each in seen.findings.findings]
