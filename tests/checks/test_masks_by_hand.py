"""Masks that are written by hand before a softmax."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.twins import numbers, sgd, whole

pytestmark = pytest.mark.sweep

X, Y, LENGTHS = numbers(16, 7, 5), whole(3, 16), 2 + whole(6, 16)
REAL = torch.arange(7) < LENGTHS[:, None]


def filled(scores, real):
    return scores.masked_fill(~real, float("-inf")).softmax(1)


def filled_low(scores, real):
    return scores.masked_fill(~real, -1e4).softmax(1)


def filled_with_nearly_nothing(scores, real):
    return scores.masked_fill(~real, 1e-9).softmax(1)


def multiplied(scores, real):
    return (scores * real).softmax(1)


def multiplied_as_numbers(scores, real):
    return F.softmax(real.float() * scores, dim=1)


def multiplied_again(scores, real):
    shares = F.softmax(scores * real, dim=1) * real
    return shares / shares.sum(1, keepdim=True)


def over_features(scores, real):
    return ((scores[..., None] * real[..., None]).expand(-1, -1, 3).softmax(-1)[..., 0] * real).cumsum(1)


def at_random(scores, real):
    kept = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    return (scores * kept).softmax(1)


class Pooled(nn.Module):
    """Attention over steps, by methods and not by its forward."""

    def __init__(self, weigh):
        super().__init__()
        torch.manual_seed(0)
        self.score, self.head, self.weigh = nn.Linear(5, 1), nn.Linear(5, 3), weigh

    def classes(self, x, real):
        weight = self.weigh(self.score(x)[..., 0], real)
        return self.head((weight[..., None] * x).sum(1))


@pytest.mark.parametrize(
    ("weigh", "named"),
    [
        (filled, False),
        (filled_low, False),
        (filled_with_nearly_nothing, True),
        (multiplied, True),
        (multiplied_as_numbers, True),
        (multiplied_again, False),
        (over_features, False),
        (at_random, False),
    ],
)
def test_scores_that_a_mask_of_padding_sets_to_zero(weigh, named):
    model = Pooled(weigh)
    optimizer = sgd(model, lr=0.05)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model.classes(X, REAL), Y).backward()
            optimizer.step()
    found = [each.check for each in seen.findings.findings if each.check.startswith("padding")]
    assert found == (["padding-in-attention"] if named else [])
