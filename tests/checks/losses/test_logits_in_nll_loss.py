"""logits-in-nll-loss: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.losses.programs import ending, negative_likelihood, of_classes
from tests.checks.programs import mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("logits-in-nll-loss")
def _(buggy):
    return plain(ending(lambda h: h if buggy else h.log_softmax(-1)), loss=F.nll_loss)


def test_a_likelihood_needs_logarithms():
    assert of_classes(negative_likelihood) == ["logits-in-nll-loss"]
    assert of_classes(negative_likelihood, nn.Softmax(1)) == ["logits-in-nll-loss"]
    assert of_classes(negative_likelihood, nn.LogSoftmax(1)) == []


@pytest.mark.parametrize("logs", [True, False])
def test_the_mean_of_log_probabilities_is_bounded(logs):
    def loss(out, y):
        parts = [out, 0.5 * out]
        return F.nll_loss(torch.stack([each.log_softmax(1) if logs else each for each in parts]).mean(0), y)

    assert ("logits-in-nll-loss" in named(plain(mlp(), loss=loss))) is not logs
