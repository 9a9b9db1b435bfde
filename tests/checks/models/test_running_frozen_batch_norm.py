"""running-frozen-batch-norm: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Module, X, Y, mlp, named, plain, sgd, twin

pytestmark = pytest.mark.sweep


@twin("running-frozen-batch-norm")
def _(buggy):
    model = mlp(nn.BatchNorm1d(8))
    model[2].requires_grad_(False)
    model[2].train(buggy)
    return plain(model)


@pytest.mark.parametrize(("follows", "expected"), [(True, []), (False, ["running-frozen-batch-norm"])])
def test_norms_of_a_teacher_that_follows_are_not_frozen(follows, expected):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x):
            return self.student(x), self.teacher(x)

    torch.manual_seed(0)
    model = Pair()
    optimizer = sgd(model.student)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            out, taught = model(X)
            (F.cross_entropy(out, Y) + F.mse_loss(out, taught.detach())).backward()
            optimizer.step()
            if follows:
                with torch.no_grad():
                    for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                        slow.lerp_(fast, 0.1)
    assert named(seen.findings) == expected


def test_norms_that_run_in_a_frozen_part_without_gradients():
    def forward(self, x):
        with torch.no_grad():
            h = self.trunk(x)
        return self.end(h)

    def model(running):
        made = Module(
            forward,
            trunk=lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()),
            end=lambda: nn.Linear(8, 2),
        )
        made.trunk.requires_grad_(False).train(running)
        return made

    assert named(plain(model(False))) == []
    assert named(plain(model(True))) == ["running-frozen-batch-norm"]
