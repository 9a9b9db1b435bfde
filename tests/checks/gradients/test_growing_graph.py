"""growing-graph: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, looped, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("growing-graph")
def _(buggy):
    model = nn.Linear(4, 8)
    optimizer, state = sgd(model), torch.zeros(8, 8)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(6):
            optimizer.zero_grad()
            state = 0.5 * (state if buggy else state.detach()) + model(X + step)
            state.pow(2).mean().backward(retain_graph=buggy)
            optimizer.step()
    return seen.findings


@pytest.mark.parametrize("cut", [True, False])
def test_a_graph_that_grows_from_epoch_to_epoch_anew_is_named(cut):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(4))], lr=0.1)
    scale = optimizer.param_groups[0]["params"][0]
    with surefoot.watch(model.requires_grad_(False), optimizer) as seen:
        for step in range(16):
            state = torch.zeros(4) if step % 8 == 0 else state.detach() if cut else state  # noqa: F821
            state = torch.tanh(model(X[: 1 + step % 3]).mean(0) + state + scale.sigmoid().clone())
            optimizer.zero_grad()
            state.square().mean().backward(retain_graph=not cut)
            optimizer.step()
    assert ("growing-graph" in named(seen.findings)) is not cut


@pytest.mark.parametrize("carried", [True, False])
def test_a_graph_grows_in_updates_of_several_parts_as_well(carried):
    memory = [torch.zeros(2)]

    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in ((X[:4], Y[:4]), (X[4:], Y[4:])):
            logits = model(x)
            mixed = 0.9 * memory[0] + 0.1 * logits.mean(0)
            memory[0] = mixed if carried else mixed.detach()
            loss = F.cross_entropy(logits, y) + 0.1 * mixed.square().sum()
            (loss / 2).backward(retain_graph=True)
        optimizer.step()

    model = nn.Sequential(nn.Linear(4, 2))
    assert looped(step, steps=10, model=model) == (["growing-graph"] if carried else [])


class Unrolled(nn.Module):
    def __init__(self, *, carried):
        super().__init__()
        self.cell, self.carried, self.state, self.turns = nn.Linear(4, 4), carried, torch.zeros(8, 4), 0

    def forward(self, x):
        self.turns += 1
        state = self.state if self.carried else torch.zeros(8, 4)
        for _ in range(1 if self.carried else self.turns):
            state = torch.tanh(self.cell(x) + state)
        self.state = state
        return state[:, :2]


def _still(optimizer):
    """An update that writes to nothing that a graph has saved."""
    kept = [(each, each.data) for group in optimizer.param_groups for each in group["params"]]
    for each, values in kept:
        each.data = values.clone()
    optimizer.step()


@pytest.mark.parametrize("carried", [True, False])
def test_a_model_may_be_unrolled_for_more_and_more_steps(carried):
    model = Unrolled(carried=carried)
    optimizer = sgd(model, lr=0.0001)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(7):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward(retain_graph=True)
            with torch.no_grad():
                for each in model.parameters():
                    each.data -= 0.001 * each.grad
            torch.optim.SGD.step(optimizer) if not carried else _still(optimizer)
    assert ("growing-graph" in named(seen.findings)) is carried
