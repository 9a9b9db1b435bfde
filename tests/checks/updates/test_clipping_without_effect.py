"""clipping-without-effect: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, looped, mlp, sgd, twin

pytestmark = pytest.mark.sweep


@twin("clipping-without-effect")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if not buggy:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if buggy:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return seen.findings


def copied_back(model):
    for p in model.parameters():
        p.grad.copy_(p.grad * 0.5)


def data_in_place(model):
    for p in model.parameters():
        p.grad.data.clamp_(-0.1, 0.1)


def in_place(model):
    for p in model.parameters():
        p.grad.clamp_(-0.1, 0.1)


def into_copies(model):
    copies = [p.grad.clone() for p in model.parameters()]
    for each in copies:
        each.mul_(0.5)


def into_new(model):
    for p in model.parameters():
        p.grad.clamp(-0.1, 0.1)


def into_the_name(model):
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        g = p.grad
        g = g * min(1.0, 0.1 / float(norm))


def measured(model):
    return [float((p.grad / p.numel()).norm()) for p in model.parameters()]


def put_back(model):
    for p in model.parameters():
        p.grad = p.grad.clamp(-0.1, 0.1)


def through_a_view(model):
    for p in model.parameters():
        p.grad.detach().mul_(0.5)


def through_data(model):
    for p in model.parameters():
        p.grad.data.clamp(-0.1, 0.1)


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


def clipped(*, when, parameters=lambda model: model.parameters()):
    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in ((X[:4], Y[:4]), (X[4:], Y[4:])):
            if when == "before":
                nn.utils.clip_grad_norm_(parameters(model), 1.0)
            (F.cross_entropy(model(x), y) / 2).backward()
        if when == "after":
            nn.utils.clip_grad_norm_(parameters(model), 1.0)
        optimizer.step()

    return looped(step)


def test_clipping_must_come_after_the_last_backward_and_reach_most_of_an_update():
    assert clipped(when="after") == []
    assert clipped(when="before") == ["clipping-without-effect"]
    assert clipped(when="after", parameters=lambda model: [model[2].bias]) == ["clipping-without-effect"]
    assert clipped(when="after", parameters=lambda model: model[0].parameters()) == []
