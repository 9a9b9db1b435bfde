"""unregistered-parameter: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

import surefoot
from tests.checks.programs import Module, X, mlp, named, numbers, plain, sgd, twin, two_layers

pytestmark = pytest.mark.sweep


@twin("unregistered-parameter")
def _(buggy):
    scale = torch.ones(4, requires_grad=True) if buggy else nn.Parameter(torch.ones(4))
    return plain(Module(lambda self, x: self.end(x * self.scale), scale=scale, end=lambda: nn.Linear(4, 2)))


def test_points_at_which_derivatives_are_taken_are_no_parameters():
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    model.points = torch.linspace(0, 1, 12)[:, None].requires_grad_()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            u = model(model.points)
            (slope,) = torch.autograd.grad(u.sum(), model.points, create_graph=True)
            optimizer.zero_grad()
            (slope + u - 1).square().mean().backward()
            optimizer.step()
    assert {each.severity for each in seen.findings.findings} <= {"info"}


def test_points_at_which_an_equation_is_derived_are_no_parameters():
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = sgd(model)
    x, t = (numbers(16, 1, seed=n).requires_grad_() for n in range(2))

    def residual():
        u = model(torch.cat([x, t], 1))
        by_x, by_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        return (by_t + u * by_x - 0.1 * torch.autograd.grad(by_x.sum(), x, create_graph=True)[0]).square().mean()

    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            residual().backward()
            optimizer.step()
    assert [each.severity for each in seen.findings.findings if each.severity != "info"] == []


def test_a_tensor_of_nobody_that_is_never_moved():
    gain = torch.ones((), requires_grad=True)
    model = two_layers(lambda self, h: h * gain)
    assert named(plain(model)) == ["unregistered-parameter"]
    points = X.clone().requires_grad_()  # as of a differential equation: an input of the model
    assert [each.severity for each in plain(mlp(), x=points).findings] == ["info"]
