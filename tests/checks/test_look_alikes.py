"""Sound programs that look like a bug: numbers side by side, settings in files, orders that two customers share."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, numbers, plain, sgd


class Decays(nn.Module):
    """A number for every row, as curves are fitted."""

    def __init__(self, *shape: int):
        super().__init__()
        self.height, self.rate = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, t):
        return self.height.exp() * torch.exp(-self.rate.exp() * t)


def test_numbers_that_begin_as_zero_are_no_layers():
    t, y = numbers(8, 6).abs(), numbers(8, 6, seed=1)
    assert named(plain(Decays(8, 1), loss=F.mse_loss, x=t, y=y)) == []
    assert named(plain(Decays(8, 6), loss=F.mse_loss, x=t, y=y)) == ["symmetric-initial-weights"]


def test_a_setting_in_a_file_is_no_counter():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def save(**beside):
        return plain(
            model,
            optimizer=optimizer,
            after=lambda step: torch.save({"model": model.state_dict(), **beside}, io.BytesIO()),
        )

    assert named(save(epochs=3)) == []
    assert named(save(epoch=3)) == ["checkpoint-without-optimizer"]


@pytest.mark.parametrize(("size", "expected"), [(1.0, []), (0.37, ["evaluation-samples-in-training"])])
def test_rows_of_whole_numbers_may_come_twice(size, expected):
    rows = (numbers(160, 20) > 0).float() * size
    train, test = rows[:128], torch.cat([rows[:4], rows[128:]])
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in train.split(16):
            optimizer.zero_grad()
            F.mse_loss(model(batch), batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(test)
    assert named(seen.findings) == expected


def test_buffers_of_a_copy_that_went_its_own_way_are_in_the_file():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
        other = copy.deepcopy(model)
        with torch.no_grad():
            other[1].running_mean.add_(1.0)
            other[1].running_var.mul_(2.0)
            other[1].num_batches_tracked.add_(3)
        torch.save(other.state_dict(), io.BytesIO())
        assert named(seen.findings) == []
        torch.save(dict(model.named_parameters()), io.BytesIO())
        assert named(seen.findings) == ["state-lost-on-reload"]


def test_a_step_may_have_nothing_to_learn_from():
    model = mlp()
    optimizer = sgd(model)
    chosen = torch.stack([Y >= 0, Y == 0, Y < 0])
    with surefoot.watch(model, optimizer) as seen:
        for rows in chosen:
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows], reduction="sum").backward()
            optimizer.step()
    assert named(seen.findings) == []
