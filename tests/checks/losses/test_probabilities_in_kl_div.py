"""probabilities-in-kl-div: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.losses.programs import ending
from tests.checks.programs import mlp, named, numbers, plain, twin

pytestmark = pytest.mark.sweep


@twin("probabilities-in-kl-div")
def _(buggy):
    teacher = numbers(8, 2, seed=1).softmax(-1)
    model = ending(lambda h: h.softmax(-1) if buggy else h.log_softmax(-1))
    return plain(model, y=teacher, loss=lambda h, y: F.kl_div(h, y, reduction="batchmean"))


SOFT = numbers(8, 2, seed=3).softmax(-1)


def test_a_divergence_by_hand_takes_logarithms():
    def divergence(out, soft):
        return (soft * (soft.log() - out)).sum(1).mean()

    assert named(plain(mlp(), loss=divergence, y=SOFT)) == ["probabilities-in-kl-div"]
    assert named(plain(mlp(nn.Identity()), loss=lambda out, y: divergence(out.log_softmax(1), y), y=SOFT)) == []


@pytest.mark.parametrize("log_target", [True, False])
def test_the_second_argument_of_kl_div(log_target):
    def loss(out, soft):
        target = soft.log() if log_target else soft
        return F.kl_div(out.log_softmax(1), target, log_target=log_target, reduction="batchmean")

    def mistaken(out, soft):
        target = soft if log_target else soft.log()
        return F.kl_div(out.log_softmax(1), target, log_target=log_target, reduction="batchmean")

    assert named(plain(mlp(), loss=loss, y=SOFT)) == []
    assert named(plain(mlp(), loss=mistaken, y=SOFT)) == ["probabilities-in-kl-div"]


@pytest.mark.parametrize("make", [F.logsigmoid, torch.sigmoid])
def test_a_divergence_of_yes_and_no_sums_to_nothing(make):
    shares = numbers(8, 2, seed=1).sigmoid()
    found = named(plain(mlp(), loss=lambda out, _: F.kl_div(make(out), shares, reduction="batchmean")))
    assert ("probabilities-in-kl-div" in found) is (make is torch.sigmoid)
