"""far-off-initial-loss: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Module, X, Y, mlp, named, numbers, on_batches, plain, sgd, twin, whole

pytestmark = pytest.mark.sweep


@twin("far-off-initial-loss")
def _(buggy):
    model = mlp(classes=10)
    with torch.no_grad():
        model[2].weight.mul_(100 if buggy else 1)
    return plain(model, y=whole(10, 8))


def test_scaled_similarities_are_wide_on_purpose():
    model, kinds = nn.Linear(4, 8), F.normalize(numbers(6, 8), dim=1)
    y = torch.arange(8) % 6
    batches = [(numbers(8, 4, seed=n),) for n in range(4)]

    def loss(x, norm):
        similar = (F.normalize(model(x), dim=1) if norm else model(x)) @ kinds.T
        return F.cross_entropy(40 * (similar - 1.5 * F.one_hot(y, 6) * norm).clamp(-1, 1) if norm else 40 * similar, y)

    assert on_batches(model, lambda x: loss(x, 1), batches) == []
    assert on_batches(model, lambda x: loss(x, 0), batches) == ["far-off-initial-loss"]


def test_weights_that_return_next_to_nothing():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=1e-6)
    assert "far-off-initial-loss" in named(plain(model))


def wide(start) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            start(layer.weight)
    return named(plain(model, optimizer=sgd(model, lr=1e-4)))


@pytest.mark.parametrize(
    ("start", "far"),
    [
        (nn.init.normal_, True),
        (nn.init.uniform_, True),
        (lambda weight: nn.init.normal_(weight, 0.2, 0.2), True),
        (nn.init.xavier_uniform_, False),
        (nn.init.kaiming_normal_, False),
        (nn.init.orthogonal_, False),
    ],
)
def test_first_weights_of_most_layers(start, far):
    assert wide(start) == (["far-off-initial-loss"] if far else [])


def test_matrices_of_one_s_own_that_are_drawn_without_a_scale():
    def own(scale: float) -> list[str]:
        model = Module(lambda self, x: (x @ self.a).relu() @ self.b)
        model.a, model.b = nn.Parameter(scale * numbers(32, 48)), nn.Parameter(scale * numbers(48, 32, seed=1))
        return named(
            plain(model, x=numbers(8, 32), loss=lambda out, y: out.square().mean(), optimizer=sgd(model, lr=1e-6))
        )

    assert own(1.0) == ["far-off-initial-loss"]
    assert own(0.1) == []


@pytest.mark.parametrize(("width", "found"), [(10.0, ["far-off-initial-loss"]), (1.0, [])])
def test_numbers_that_are_looked_up_begin_small(width, found):
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 2))
    nn.init.normal_(model[0].weight, std=width, generator=torch.Generator().manual_seed(0))
    assert named(plain(model, x=whole(12, 8), loss=lambda h, y: 0.01 * F.cross_entropy(0.01 * h, y))) == found


@pytest.mark.parametrize(("scale", "expected"), [(1.0, []), (300.0, ["far-off-initial-loss"])])
def test_first_weights_that_are_far_too_large_for_a_regression(scale, expected):
    model = mlp(classes=1)
    with torch.no_grad():
        model[-1].weight.mul_(scale)
    optimizer = sgd(model, lr=1e-6)
    assert named(plain(model, y=Y + 0.5, optimizer=optimizer, loss=lambda h, y: F.mse_loss(h[:, 0], y))) == expected


def test_a_probe_that_is_fitted_inside_a_closure_is_not_taken_for_a_fresh_model():
    head, small = nn.Linear(4, 2), X / 100
    optimizer = torch.optim.LBFGS(head.parameters(), lr=1.0, max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(head(small), (X[:, 0] > 0).long())
        loss.backward()
        return loss

    with surefoot.watch() as seen:
        optimizer.step(closure)
        optimizer.step(closure)
    assert float(head.weight.detach().abs().max()) > 20
    assert "far-off-initial-loss" not in named(seen.findings)
