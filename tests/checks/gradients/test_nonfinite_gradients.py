"""nonfinite-gradients: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch.nn.functional as F

from tests.checks.programs import X, Y, looped, mlp, plain, twin

pytestmark = pytest.mark.sweep


@twin("nonfinite-gradients")
def _(buggy):
    return plain(mlp(), loss=lambda h, y: F.cross_entropy(h, y) * (float("inf") if buggy else 1.0))


def test_a_loss_that_is_infinite_though_its_gradients_are_not():
    def endless(model, optimizer):
        optimizer.zero_grad()
        worth = F.relu(model(X)).sum(1)
        (F.cross_entropy(model(X), Y) - (0 * worth.detach() - (worth <= 2).float()).log1p().mean()).backward()
        optimizer.step()

    assert looped(endless) == ["nonfinite-gradients"]
