"""input-ignored: the buggy and the fixed program, variants, and what looks like it and is fine."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Held, Module, X, Y, mlp, named, numbers, plain, sgd, twin, whole

pytestmark = pytest.mark.sweep


@twin("input-ignored")
def _(buggy):
    return plain(Module(lambda self, x: self.body(torch.zeros_like(x) if buggy else x), body=mlp))


@pytest.mark.parametrize("filled", [True, False])
def test_an_output_beside_a_state_that_does_not_depend_on_the_input(filled):
    def forward(self, x):
        out, state = self.rnn(x)
        return self.end(out if filled else torch.zeros_like(out)), state

    model = Module(forward, rnn=lambda: nn.GRU(3, 8, batch_first=True), end=lambda: nn.Linear(8, 1))
    loss = lambda out, y: F.mse_loss(out[0], y)  # noqa: E731
    findings = named(plain(model, loss=loss, x=numbers(6, 5, 3), y=numbers(6, 5, 1, seed=1)))
    assert findings == ([] if filled else ["input-ignored"])


class OfObjects(nn.Module):
    def __init__(self, *, blind: bool = False):
        super().__init__()
        self.net, self.blind = mlp(nn.BatchNorm1d(8)), blind

    def forward(self, batch):
        return self.net(torch.ones_like(batch.x) if self.blind else batch.x)


def given(kind, model):
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(kind(x=X + step)), Y).backward()
            optimizer.step()
    return named(seen.findings)


def test_inputs_in_objects_are_replaced_before_a_model_is_said_to_ignore_them():
    assert given(Held, OfObjects()) == given(SimpleNamespace, OfObjects()) == []
    assert given(Held, OfObjects(blind=True)) == ["input-ignored"]


def test_an_input_that_is_one_number_is_no_input():
    assert named(plain(mlp(), x=torch.zeros(8, 4))) == ["input-ignored"]


@pytest.mark.parametrize("ignored", [True, False])
def test_columns_of_few_numbers_are_exchanged_and_not_redrawn(ignored):
    columns = torch.stack([whole(2, 8), whole(50, 8, seed=1)], 1)

    def forward(self, x):
        h = torch.cat([self.a(x[:, 0]), self.b(x[:, 1])], 1)
        return self.end(torch.zeros_like(h) if ignored else h)

    model = Module(forward, a=lambda: nn.Embedding(2, 4), b=lambda: nn.Embedding(50, 4), end=lambda: nn.Linear(8, 2))
    assert named(plain(model, x=columns)) == (["input-ignored"] if ignored else [])
