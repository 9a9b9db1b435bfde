"""Gradients that a loop limits or adds up by hand."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.test_loop_variants import looped
from tests.checks.twins import X, Y

pytestmark = pytest.mark.sweep


def into_new(model):
    for p in model.parameters():
        p.grad.clamp(-0.1, 0.1)


def through_data(model):
    for p in model.parameters():
        p.grad.data.clamp(-0.1, 0.1)


def data_in_place(model):
    for p in model.parameters():
        p.grad.data.clamp_(-0.1, 0.1)


def into_the_name(model):
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        g = p.grad
        g = g * min(1.0, 0.1 / float(norm))


def into_copies(model):
    copies = [p.grad.clone() for p in model.parameters()]
    for each in copies:
        each.mul_(0.5)


def in_place(model):
    for p in model.parameters():
        p.grad.clamp_(-0.1, 0.1)


def through_a_view(model):
    for p in model.parameters():
        p.grad.detach().mul_(0.5)


def put_back(model):
    for p in model.parameters():
        p.grad = p.grad.clamp(-0.1, 0.1)


def copied_back(model):
    for p in model.parameters():
        p.grad.copy_(p.grad * 0.5)


def measured(model):
    return [float((p.grad / p.numel()).norm()) for p in model.parameters()]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(each, ["clipping-without-effect"]) for each in (into_new, through_data, into_the_name, into_copies)]
    + [(each, []) for each in (in_place, data_in_place, through_a_view, put_back, copied_back, measured)],
)
def test_limited_gradients_must_be_the_ones_that_are_used(limit, expected):
    def step(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        limit(model)
        optimizer.step()

    assert looped(step) == expected


@pytest.mark.parametrize(
    ("joined", "expected"),
    [
        (lambda before, found: found, []),
        (lambda before, found: found if before is None else before + found, ["missing-zero-grad"]),
        (lambda before, found: found if before is None else 0.5 * before + found, []),
    ],
)
def test_gradients_that_are_set_by_hand_hold_none_of_the_last_update(joined, expected):
    def step(model, optimizer):
        parameters = list(model.parameters())
        for p, found in zip(parameters, torch.autograd.grad(F.cross_entropy(model(X), Y), parameters), strict=True):
            p.grad = joined(p.grad, found)
        optimizer.step()

    assert looped(step) == expected


@pytest.mark.parametrize("divided", ["in place", "put back", ""])
@pytest.mark.parametrize("loss", [F.cross_entropy, lambda x, y: F.cross_entropy(x, y, reduction="sum") / len(y)])
def test_parts_may_be_averaged_in_their_gradients(loss, divided):
    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in ((X[:4], Y[:4]), (X[4:], Y[4:])):
            loss(model(x), y).backward()
        for p in model.parameters():
            if divided == "in place":
                p.grad.div_(2)
            elif divided:
                p.grad = p.grad / 2
        optimizer.step()

    assert looped(step) == ([] if divided else ["summed-micro-batches"])


def test_a_mean_may_be_a_likelihood_whose_sign_is_turned():
    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in ((X[:4], Y[:4]), (X[4:], Y[4:])):
            (-model(x).log_softmax(1).gather(1, y[:, None]).mean()).backward()
        optimizer.step()

    assert looped(step) == ["summed-micro-batches"]
