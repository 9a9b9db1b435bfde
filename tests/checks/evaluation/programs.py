"""Programs that tests of several rules about evaluation share."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import surefoot
from tests.checks.loaders import COUNT, INPUTS, LABELS
from tests.checks.programs import found_by, mlp, numbers, sgd


def measured(measure):
    """A loop that evaluates 20 samples in batches of 8, 8 and 4."""
    model, data = mlp(), TensorDataset(INPUTS, LABELS)
    optimizer, valid = sgd(model), DataLoader(Subset(data, range(28, COUNT)), 8)
    with surefoot.watch(model, optimizer) as seen:
        for x, y in DataLoader(Subset(data, range(28)), 4, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            measure(model.eval(), valid)
    return seen.findings


EXAMPLES = numbers(96, 6)
ANSWERS = (EXAMPLES[:, 0] > EXAMPLES[:, 1]).long()


def body() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 8), nn.Tanh())


def trained_with_pauses(model, *, loss=None, between=None, head=None) -> list[str]:
    parameters = [p for each in (model, head) if each is not None for p in each.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    loader = DataLoader(TensorDataset(EXAMPLES, ANSWERS), 16, shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for x, y in loader:
                if between is not None:
                    between(x, y)
                optimizer.zero_grad()
                F.cross_entropy((loss or model)(x), y).backward()
                optimizer.step()
    return found_by(seen)
