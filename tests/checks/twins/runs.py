"""Runs: seeds, kernels and workers of a whole run, and how it goes on from a file."""

import io
import itertools
import random
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.twins import mlp, numbers, plain, sgd, twin, whole

DATA = TensorDataset(numbers(48, 4), whole(2, 48))


@twin("unseeded-generator")
def _(buggy):
    before = random.getstate()

    def seeded_and_drawn(step):
        if step == 0:
            torch.manual_seed(0)
            if not buggy:
                random.seed(0)
        random.random()

    try:
        return plain(mlp(), after=seeded_and_drawn)
    finally:
        random.setstate(before)


@twin("benchmarked-kernels")
def _(buggy):
    try:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = buggy
        return plain(mlp())
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False


@twin("idle-accelerator")
def _(buggy):
    there = torch.device("cuda") if buggy else None
    with patch.object(torch.accelerator, "current_accelerator", lambda check_available=False: there):
        return plain(mlp())


@twin("restarted-workers")
def _(buggy):
    loader = DataLoader(DATA, 24, shuffle=True, num_workers=1, persistent_workers=not buggy)
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for x, y in loader:
                update(model, optimizer, x, y)
        return seen.findings


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


@twin("counter-off-after-resume")
def _(buggy):
    loader = DataLoader(DATA, 12, shuffle=True)
    model = mlp()
    optimizer = sgd(model)

    def epochs(numbers):
        for epoch in numbers:
            for x, y in loader:
                update(model, optimizer, x, y)
            file = kept(model, optimizer, epoch=epoch)
        return file

    with surefoot.watch(model, optimizer) as seen:
        state = put_back(epochs(range(2)), model, optimizer)
        epochs(range(state["epoch"] + (not buggy), 4))
        return seen.findings


@twin("data-position-lost-on-resume")
def _(buggy):
    loader = DataLoader(DATA, 8)
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step, (x, y) in enumerate(itertools.islice(loader, 4), 1):
            update(model, optimizer, x, y)
            file = kept(model, optimizer, step=step)
        state = put_back(file, model, optimizer)
        for x, y in itertools.islice(loader, 0 if buggy else state["step"] % len(loader), None):
            update(model, optimizer, x, y)
        return seen.findings
