"""overwritten-saved-tensor: the buggy and the fixed program, variants, and what looks like it and is fine."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, looped, mlp, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("overwritten-saved-tensor")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            if buggy:
                model[2].weight.data.mul_(0.9)
            loss.backward()
            optimizer.step()
    return seen.findings


@pytest.mark.parametrize("own_array", [True, False])
def test_an_array_that_a_forward_was_given_stays_as_it_is_until_backward(own_array):
    array = np.zeros((8, 4), dtype=np.float32)

    def step(model, optimizer):
        optimizer.zero_grad()
        losses = []
        for part in (X, X.flip(0)):
            given = array.copy() if own_array else array
            given[:] = part.numpy()
            losses.append(F.cross_entropy(model(torch.from_numpy(given)), Y))
        sum(losses).backward()
        optimizer.step()

    assert looped(step) == ([] if own_array else ["overwritten-saved-tensor"])


class Followed(nn.Module):
    """A head on layers that are trained, and a slow copy of it that moves in every forward."""

    def __init__(self, *, through: bool):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.through = nn.Linear(4, 6), nn.Linear(6, 2), through
        self.slow = nn.Linear(6, 2).requires_grad_(False)

    def forward(self, x):
        hidden = self.body(x).relu()
        for slow, quick in zip(self.slow.parameters(), self.head.parameters(), strict=True):
            slow.data.mul_(0.9).add_(quick.data, alpha=0.1)
        with torch.set_grad_enabled(self.through):
            aim = self.slow(hidden)
        return self.head(hidden) - 0.1 * aim


@pytest.mark.parametrize("through", [False, True])
def test_a_slow_copy_may_move_between_two_forwards_and_the_backward(through):
    model = Followed(through=through)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            (F.cross_entropy(model(X), Y) + F.cross_entropy(model(X + 0.1), Y)).backward()
            optimizer.step()
    found = [each.check for each in seen.findings.findings]
    assert ("overwritten-saved-tensor" in found) is through


@pytest.mark.parametrize("when", ["before the backward", "behind it", "never"])
def test_a_tensor_of_the_graph_that_is_written_through_its_data(when):
    model, head = mlp(classes=4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            h = model(X).relu()
            if when == "before the backward":
                h.data.mul_(2)
            F.cross_entropy(head(h), Y).backward()
            if when == "behind it":
                h.data.mul_(2)
            optimizer.step()
    assert named(seen.findings) == (["overwritten-saved-tensor"] if when == "before the backward" else [])
