"""target-among-inputs: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.checks.loaders import trained
from tests.checks.programs import Module, named, numbers, twin, whole

ROWS = numbers(128, 6, seed=1)
PRICES = ROWS @ numbers(6, 1, seed=2) + 0.3 * numbers(128, 1, seed=3)
KINDS = (ROWS.sum(1) + numbers(128, seed=4) > 0).long()


def net(inputs, outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


def fitted(x, y, *, loss=F.mse_loss, model=None, outputs=1):
    data = DataLoader(TensorDataset(x, y), 16, shuffle=True)
    flat = x[0].numel()
    model = model or nn.Sequential(nn.Flatten(), *net(flat, outputs))
    return trained(data, model=model, loss=loss)


@twin("target-among-inputs")
def _(buggy):
    x = torch.cat([ROWS, 2 * PRICES + 1 if buggy else PRICES * 0.1 + numbers(128, 1, seed=7)], 1)
    return fitted(x, PRICES)


SERIES = numbers(200, seed=5).cumsum(0) / 5
WINDOWS = SERIES.unfold(0, 12, 1)


@pytest.mark.parametrize(("ahead", "told"), [(0, True), (1, False)])
@pytest.mark.parametrize("features", [0, 1])
def test_the_last_step_of_a_window(ahead, told, features):
    x = WINDOWS[:150].reshape(150, 12, *[1] * features)
    y = SERIES[11 + ahead : 161 + ahead].reshape(150, 1)
    assert named(fitted(x, y)) == (["target-among-inputs"] if told else [])


@pytest.mark.parametrize(("ahead", "told"), [(0, True), (1, False)])
def test_a_horizon_that_begins_inside_the_window(ahead, told):
    y = SERIES[11 + ahead :].unfold(0, 5, 1)[:150]
    assert named(fitted(WINDOWS[:150], y, outputs=5)) == (["target-among-inputs"] if told else [])


@pytest.mark.parametrize("coded", [True, False])
def test_a_column_of_codes_of_the_class(coded):
    codes = torch.tensor([3.0, -1.0])[KINDS if coded else whole(2, 128, seed=8)]
    found = fitted(torch.cat([ROWS, codes[:, None]], 1), KINDS, loss=F.cross_entropy, outputs=2)
    assert named(found) == (["target-among-inputs"] if coded else [])


FINE = {
    "a line": lambda: fitted(ROWS[:, :1], 3 * ROWS[:, :1] + 1),
    "one cause among many": lambda: fitted(ROWS, ROWS[:, :1] + 0.1 * numbers(128, 1, seed=9)),
    "a threshold": lambda: fitted(ROWS, (ROWS[:, 0] > 0).long(), loss=F.cross_entropy, outputs=2),
    "an autoencoder": lambda: fitted(ROWS, ROWS, outputs=6),
    "the next step of each step": lambda: fitted(
        WINDOWS[:150, :, None], WINDOWS[1:151, :, None],
        model=Module(lambda self, x: self.out(self.rnn(x)[0]), rnn=lambda: nn.GRU(1, 4, batch_first=True),
                     out=lambda: nn.Linear(4, 1)),
    ),
    "a window and its next value": lambda: fitted(WINDOWS[:150], SERIES[12:162, None]),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", FINE)
def test_inputs_that_may_tell_the_target(name):
    assert "target-among-inputs" not in named(FINE[name]())
