"""Terms of a loss: what is added up, its factors, the modules that each term reaches, and its line."""

from pathlib import Path

import pytest
import torch
from torch import nn

from surefoot.debug.probe.order import Order
from surefoot.debug.probe.terms import OUTSIDE, Terms

LINES = Path(__file__).read_text().splitlines()


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.encoder.weight.copy_(torch.eye(2))
            self.head.weight.copy_(torch.eye(2))


def measured(loss_of, *outside: nn.Parameter):
    """The terms of the loss of one update, and the gradients that the backward after it leaves."""
    terms, model = Terms(Order("whole run", "train.py", "", measures_terms=True)), Two()
    terms.called(model)
    optimizer = torch.optim.SGD([*model.parameters(), *outside], 0.1)
    terms.update_ends(1, optimizer)
    loss = loss_of(model)
    before = torch.get_rng_state()
    terms.losses([loss], 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.is_anomaly_enabled()
    assert all(each.grad is None for each in model.parameters())
    loss.backward()
    assert terms.refused == ""
    return terms.found, model


def test_each_term_has_its_gradient_with_its_factors_its_name_and_its_line():
    x = torch.tensor([[3.0, 4.0]])

    def loss_of(model):
        inner = model.encoder(x)
        mse = model.head(inner).sum()
        norm = inner.sum()
        return 2 * (mse - 0.5 * norm)

    (mse, norm), model = measured(loss_of)
    assert (mse.name, norm.name, mse.update) == ("mse", "norm", 2)
    number = int(mse.where.rpartition(":")[2])
    assert "mse = model.head(inner).sum()" in LINES[number - 1]
    assert mse.modules == pytest.approx({"encoder": 2 * 50**0.5, "head": 2 * 50**0.5})
    assert norm.modules == pytest.approx({"encoder": 50**0.5, "head": 0})
    assert mse.length == pytest.approx(20)
    assert norm.along == mse.along == pytest.approx(-1 / 2**0.5)
    assert model.encoder.weight.grad.norm() == pytest.approx(50**0.5)  # as without being measured


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda a, b: sum([a, b, a * b]), 3),
        (lambda a, b: torch.stack([a, b]).mean(), 2),
        (lambda a, b: (a + b) / 4, 2),
        (lambda a, b: a * b, 1),
        (lambda a, b: a + 1 - b.detach(), 1),
    ],
)
def test_what_is_added_up_to_one_number_is_a_term(make, count):
    found, _ = measured(lambda model: make(model.encoder.weight.sum(), model.head.weight.sum()))
    assert len(found) == count


def test_parameters_of_no_module_are_reached_too():
    scale = nn.Parameter(torch.ones(()))
    (first, second), _ = measured(lambda model: model.head.weight.sum() + 3 * scale, scale)
    assert (first.modules[OUTSIDE], second.modules[OUTSIDE]) == (0, 3)


def test_a_loss_that_cannot_be_measured_is_left_alone():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("only in a real backward")

    terms, model = Terms(Order("whole run", "train.py", "", measures_terms=True)), Two()
    terms.called(model)
    terms.update_ends(1, torch.optim.SGD(model.parameters(), 0.1))
    terms.losses([Once.apply(model.head.weight.sum()) + 1], 1)
    assert (terms.found, terms.refused) == ([], "ValueError: only in a real backward")
