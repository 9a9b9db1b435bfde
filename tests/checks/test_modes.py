"""Modes that layers are in on purpose, beside those that were forgotten."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.twins import numbers, sgd

pytestmark = pytest.mark.sweep

X = numbers(96, 6)
Y = (X[:, 0] > X[:, 1]).long()


def named(seen) -> list[str]:
    return [each.check for each in seen.findings.findings]


def body() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 8), nn.Tanh())


class Probed(nn.Module):
    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.body, self.head = body().requires_grad_(not frozen), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


def trained(model, *, loss=None, between=None, head=None) -> list[str]:
    parameters = [p for each in (model, head) if each is not None for p in each.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for x, y in loader:
                if between is not None:
                    between(x, y)
                optimizer.zero_grad()
                F.cross_entropy((loss or model)(x), y).backward()
                optimizer.step()
    return named(seen)


@pytest.mark.parametrize(("frozen", "expected"), [(True, []), (False, ["eval-mode-in-training"])])
def test_a_head_on_frozen_features_may_be_trained_in_evaluation_mode(frozen, expected):
    assert trained(Probed(frozen=frozen).eval()) == expected


def test_an_encoder_may_keep_its_statistics_while_a_head_is_trained():
    def found(encoder: nn.Module) -> list[str]:
        head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 2))
        return trained(encoder.eval(), head=head, loss=lambda x: head(encoder(x)))

    assert found(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))) == []
    assert found(body()) == ["eval-mode-in-training"]


def by_hand(model, loss):
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None


def asked(model, loss):
    torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("measure", [by_hand, asked])
def test_gradients_that_are_only_measured_train_nothing(measure):
    model = nn.Sequential(body(), nn.Linear(8, 2))

    def between(x, y):
        model.eval()
        measure(model, F.cross_entropy(model(x), y))
        model.train()

    assert trained(model, between=between) == []


def evaluated(evaluate, *, prepare=None) -> list[str]:
    """What is said of a model that is evaluated without gradients after every pass."""
    model = nn.Sequential(body(), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for rows in torch.randperm(64).split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(X[rows]), Y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                if prepare is not None:
                    prepare(model)
                evaluate(model)
            model.train()
    return named(seen)


def dropout_alone(model):
    model.eval()
    for module in model.modules():
        module.train(isinstance(module, nn.Dropout))


def one_pass(model):
    return [float((model(part).argmax(1) == 0).sum()) for part in X[64:].split(16)]


def test_dropout_that_is_measured_runs_as_one_batch_or_alone():
    assert evaluated(lambda model: model(X[64:72].repeat(4, 1)).softmax(1).view(4, 8, 2).mean(0)) == []
    assert evaluated(one_pass, prepare=dropout_alone) == []
    assert evaluated(one_pass) == ["training-mode-in-evaluation"]


@pytest.mark.parametrize(("views", "every"), [(4, 1), (1, 5)])
def test_what_is_asked_about_the_batch_that_is_trained_on_is_no_evaluation(views, every):
    model = nn.Sequential(body(), nn.Linear(8, 2))
    count = iter(range(1000))

    def guess(x, y):
        if next(count) % every == 0:
            with torch.no_grad():
                sum(model(x + 0.1 * torch.randn_like(x)).softmax(1) for _ in range(views)).argmax(1)

    assert trained(model, between=guess) == []
