"""Samples of training that hold more than those of evaluation have no labels of others for that."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot

pytestmark = pytest.mark.sweep


def names(training: TensorDataset, evaluation: TensorDataset) -> set[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train_loader, test_loader = DataLoader(training, 16, shuffle=True), DataLoader(evaluation, 16)
    with surefoot.watch() as seen:
        for _ in range(2):
            for x, y, *weights in train_loader:
                each = nn.functional.cross_entropy(model(x), y, reduction="none")
                optimizer.zero_grad()
                (each * weights[0].exp() if weights else each).mean().backward()
                optimizer.step()
            with torch.no_grad():
                sum(int((model(x).argmax(1) == y).sum()) for x, y in test_loader)
    return {each.check for each in seen.findings.findings}


def test_weights_that_were_computed_beforehand_stand_last_in_training_alone():
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    weights = 0.1 * torch.randn(200, generator=torch.Generator().manual_seed(1))
    held = TensorDataset(x[:64], y[:64])
    assert "labels-of-other-samples" not in names(TensorDataset(x[64:], y[64:], weights[64:]), held)
    apart = y[64:][torch.randperm(136, generator=torch.Generator().manual_seed(2))]
    assert "labels-of-other-samples" in names(TensorDataset(x[64:], apart), held)
