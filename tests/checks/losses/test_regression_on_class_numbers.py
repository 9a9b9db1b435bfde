"""regression-on-class-numbers: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.programs import Y, mlp, named, plain, twin, whole

pytestmark = pytest.mark.sweep


@twin("regression-on-class-numbers")
def _(buggy):
    target = torch.arange(8.0) % 4 + (0 if buggy else 0.5)
    return plain(mlp(classes=1), y=target, loss=lambda h, y: F.mse_loss(h[:, 0], y))


@pytest.mark.parametrize("expected", [True, False])
def test_class_numbers_that_are_subtracted_by_hand(expected):
    y = whole(4, 8, seed=2)

    def loss(out, y):
        guess = (out.softmax(1) * torch.arange(4)).sum(1) if expected else out[:, 0]
        return (guess - y).abs().mean()

    assert named(plain(mlp(classes=4), loss=loss, y=y)) == ["regression-on-class-numbers"]


def test_a_squared_error_of_yes_and_no_is_no_class_number():
    assert named(plain(mlp(classes=1), y=Y.float(), loss=lambda h, y: F.mse_loss(h[:, 0], y))) == []
