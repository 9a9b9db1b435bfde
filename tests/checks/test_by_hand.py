"""Losses that are written by hand, right and wrong, are told by the gradients they give."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from surefoot.checks.losses.gradient_signature import signature_of
from tests.checks.twins import X, Y, mlp, numbers, plain

pytestmark = pytest.mark.sweep

ROWS = torch.arange(8)
YES = (X[:, :1] > 0).float()
FAR = X[:, :1] * 2 + 0.5
SOFT = numbers(8, 2, seed=3).softmax(-1)


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


def of_classes(loss, *last: nn.Module) -> list[str]:
    return named(plain(nn.Sequential(*mlp(), *last), loss=loss))


def of_one(loss, *last: nn.Module, y=YES) -> list[str]:
    return named(plain(nn.Sequential(*mlp(classes=1), *last), loss=loss, y=y))


def negative_likelihood(out, y):
    return -out.gather(1, y[:, None]).mean()


def energy(out, y):
    return (out.logsumexp(1) - out[ROWS, y]).mean()


def one_hot(out, y):
    return -(F.one_hot(y, 2) * out.log_softmax(-1)).sum(-1).mean()


def binary(out, y):
    return -(y * F.logsigmoid(out) + (1 - y) * F.logsigmoid(-out)).mean()


def overlap(out, y):
    shares = out.sigmoid()
    return 1 - 2 * (shares * y).sum() / (shares.sum() + y.sum())


def squares(out, y):
    return (out - y).square().mean()


@pytest.mark.parametrize("loss", [energy, one_hot, lambda out, y: negative_likelihood(out.log_softmax(1), y)])
def test_a_cross_entropy_by_hand(loss):
    assert of_classes(loss) == []
    assert of_classes(lambda out, y: -loss(out, y)) == ["negated-loss"]
    assert of_classes(loss, nn.Softmax(1)) == ["softmax-before-cross-entropy"]
    assert of_classes(loss, nn.ReLU()) == ["activation-before-cross-entropy"]


def test_a_likelihood_needs_logarithms():
    assert of_classes(negative_likelihood) == ["logits-in-nll-loss"]
    assert of_classes(negative_likelihood, nn.Softmax(1)) == ["logits-in-nll-loss"]
    assert of_classes(negative_likelihood, nn.LogSoftmax(1)) == []


@pytest.mark.parametrize("loss", [binary, overlap])
def test_a_binary_loss_by_hand(loss):
    assert of_one(loss) == []
    assert of_one(lambda out, y: 1 - loss(out, y)) == ["negated-loss"]


def test_a_sigmoid_before_a_binary_loss_by_hand():
    assert of_one(binary, nn.Sigmoid()) == ["sigmoid-before-bce-with-logits"]
    assert of_one(lambda p, y: -(y * p.log() + (1 - y) * (1 - p).log()).mean(), nn.Sigmoid()) == []


def test_a_distance_by_hand():
    assert of_one(squares, y=FAR) == []
    assert of_one(lambda out, y: 1 - squares(out, y), y=FAR) == ["negated-loss"]
    assert of_one(lambda out, y: (-(out - y).abs()).mean(), y=FAR) == ["negated-loss"]
    assert of_one(squares, y=torch.arange(8.0)[:, None] % 4) == ["regression-on-class-numbers"]


def test_returns_below_zero_are_no_sign_error():
    def policy(out, y):
        return -(out.log_softmax(1)[ROWS, y] * -torch.linspace(1, 3, 8)).mean()

    assert of_classes(policy) == []


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


def test_constant_targets_of_a_loss_by_hand():
    assert named(plain(mlp(), loss=one_hot, y=torch.ones_like(Y), steps=6)) == ["constant-targets"]


def test_a_product_can_spread_as_a_difference_does():
    assert of_one(binary, y=YES[:, 0]) == ["broadcast-loss"]


def test_a_term_that_is_rounded_has_no_gradient():
    def loss(out, y, rounded):
        found = out.softmax(1)[:, 1]
        return F.cross_entropy(out, y) + ((found.round() if rounded else found) - y).square().mean()

    assert of_classes(lambda out, y: loss(out, y, rounded=False)) == []
    assert of_classes(lambda out, y: loss(out, y, rounded=True)) == ["loss-term-without-gradient"]


def gradient(loss, prediction: torch.Tensor) -> torch.Tensor:
    prediction = prediction.clone().requires_grad_()
    return torch.autograd.grad(loss(prediction), prediction)[0]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 9), rows=st.integers(6, 40), scale=st.floats(0.1, 5))
def test_the_gradient_of_a_cross_entropy_is_known_by_its_direction(seed, classes, rows, scale):
    given = numbers(rows, classes, seed=seed) * scale
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(seed))
    seen = signature_of(given, gradient(lambda out: F.cross_entropy(out, target), given), target)
    against = signature_of(given, gradient(lambda out: -F.cross_entropy(out, target), given), target)
    assert seen is not None
    assert (seen.kind, seen.sign, seen.values) == ("classes", 1, "numbers")
    assert against is not None
    assert against.sign == -1


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), rows=st.integers(6, 40))
def test_a_gradient_that_has_nothing_to_do_with_a_target_has_no_signature(seed, rows):
    given, other = numbers(rows, 5, seed=seed), numbers(rows, 5, seed=seed + 1)
    assert signature_of(given, other, numbers(rows, 5, seed=seed + 2)) is None


def test_logits_between_zero_and_one_are_logits_all_the_same():
    model = mlp(classes=1)
    nn.init.constant_(model[-1].bias, 0.5)
    nn.init.normal_(model[-1].weight, std=1e-3)

    def cut(values):
        def after(_):
            with torch.no_grad():
                (values(model(X)) > 0.5).float().mean()

        loss = F.binary_cross_entropy_with_logits
        return named(
            plain(model, loss=loss, y=YES, optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), after=after)
        )

    assert cut(torch.sigmoid) == []
    assert cut(lambda logits: logits) == ["threshold-on-logits"]
