"""sigmoid-before-bce-with-logits: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.losses.programs import binary, ending, of_one
from tests.checks.programs import Module, X, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("sigmoid-before-bce-with-logits")
def _(buggy):
    model = ending(lambda h: h[:, 0].sigmoid() if buggy else h[:, 0])
    return plain(model, loss=lambda h, y: F.binary_cross_entropy_with_logits(h, y.float()))


def test_a_sigmoid_before_a_binary_loss_by_hand():
    assert of_one(binary, nn.Sigmoid()) == ["sigmoid-before-bce-with-logits"]
    assert of_one(lambda p, y: -(y * p.log() + (1 - y) * (1 - p).log()).mean(), nn.Sigmoid()) == []


class Raised(nn.Module):
    """Logits a little above zero, or shares."""

    def __init__(self, *, squeezed):
        super().__init__()
        self.own, self.squeezed = nn.Embedding(8, 1), squeezed
        nn.init.normal_(self.own.weight, std=0.01)

    def forward(self, x):
        out = self.own(torch.arange(8)).squeeze(1) + 0.4
        return torch.sigmoid(out) if self.squeezed else out


@pytest.mark.parametrize("squeezed", [True, False])
def test_logits_may_happen_to_lie_between_0_and_1(squeezed):
    def by_hand(out, y):
        return (F.softplus(out) - y.float() * out).mean()

    found = named(plain(Raised(squeezed=squeezed), loss=by_hand))
    assert ("sigmoid-before-bce-with-logits" in found) is squeezed


def _binary_by_hand(share, y):
    return -(y * share.log() + (1 - y) * (1 - share).log()).mean()


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, y: F.binary_cross_entropy_with_logits(out.sigmoid().clamp(1e-6, 1 - 1e-6), y),
        lambda out, y: F.binary_cross_entropy(out.sigmoid().sigmoid(), y),
        lambda out, y: _binary_by_hand(out.sigmoid().sigmoid(), y),
    ],
)
def test_a_sigmoid_of_a_sigmoid(loss):
    assert named(plain(mlp(classes=1), loss=loss, y=(X[:, :1] > 0).float())) == ["sigmoid-before-bce-with-logits"]


def test_a_gate_of_gates_is_no_double_sigmoid():
    gated = Module(
        lambda self, x: self.b(self.a(x).sigmoid()).sigmoid(), a=lambda: nn.Linear(4, 8), b=lambda: nn.Linear(8, 1)
    )
    assert named(plain(gated, loss=F.binary_cross_entropy, y=(X[:, :1] > 0).float())) == []
