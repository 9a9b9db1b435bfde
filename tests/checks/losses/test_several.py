"""Tests that concern several rules about losses."""

import pytest
import torch
from torch import nn

from tests.checks.losses.programs import ROWS, negative_likelihood, of_classes, of_one, one_hot
from tests.checks.programs import X

pytestmark = pytest.mark.sweep


def energy(out, y):
    return (out.logsumexp(1) - out[ROWS, y]).mean()


@pytest.mark.parametrize("loss", [energy, one_hot, lambda out, y: negative_likelihood(out.log_softmax(1), y)])
def test_a_cross_entropy_by_hand(loss):
    assert of_classes(loss) == []
    assert of_classes(lambda out, y: -loss(out, y)) == ["negated-loss"]
    assert of_classes(loss, nn.Softmax(1)) == ["softmax-before-cross-entropy"]
    assert of_classes(loss, nn.ReLU()) == ["activation-before-cross-entropy"]


FAR = X[:, :1] * 2 + 0.5


def squares(out, y):
    return (out - y).square().mean()


def test_a_distance_by_hand():
    assert of_one(squares, y=FAR) == []
    assert of_one(lambda out, y: 1 - squares(out, y), y=FAR) == ["negated-loss"]
    assert of_one(lambda out, y: (-(out - y).abs()).mean(), y=FAR) == ["negated-loss"]
    assert of_one(squares, y=torch.arange(8.0)[:, None] % 4) == ["regression-on-class-numbers"]
