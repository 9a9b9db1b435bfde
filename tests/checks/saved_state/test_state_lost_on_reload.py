"""state-lost-on-reload: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Module, X, Y, found_by, named, plain, sgd, twin
from tests.checks.saved_state.programs import adam, normed_net, saved, step, train

pytestmark = pytest.mark.sweep


@twin("state-lost-on-reload")
def _(buggy):
    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.end(x - self.mean)

    model = Module(forward, end=lambda: nn.Linear(4, 2))
    if buggy:
        model.mean = torch.zeros(4)
    else:
        model.register_buffer("mean", torch.zeros(4))
    return plain(model)


class Remembers(nn.Module):
    """A net with tensors that no state_dict holds."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.layer, self.out, self.reads = nn.Linear(6, 8), nn.Linear(8, 2), reads
        self.seen, self.noise, self.last = torch.zeros(8), torch.zeros(8, 6), torch.zeros(16, 2)

    def forward(self, x):
        self.noise = torch.randn(8, 6)
        hidden = F.linear(x, self.layer.weight + 0.01 * self.noise, self.layer.bias)
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * hidden.detach().mean(0)
        out = self.out(hidden - self.seen if self.reads else hidden)
        self.last = out.detach()
        return out


@pytest.mark.parametrize("reads", [False, True])
def test_tensors_that_no_output_depends_on_are_no_state(reads):
    with surefoot.watch() as seen:
        model = Remembers(reads=reads)
        train(model, adam(model))
    lost = [each for each in seen.findings.findings if each.check == "state-lost-on-reload"]
    assert [each.where for each in lost] == (["seen"] if reads else [])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out, self.state = nn.GRUCell(6, 8), nn.Linear(8, 2), torch.zeros(16, 8)

    def forward(self, x):
        state = self.cell(x, self.state)
        self.state = state.detach()
        return self.out(state)


@pytest.mark.parametrize(("resets", "expected"), [(True, []), (False, ["state-lost-on-reload"])])
def test_a_state_that_every_pass_begins_anew_is_not_lost(resets, expected):
    with surefoot.watch() as seen:
        model = Recurrent()
        optimizer = adam(model)
        for _ in range(3):
            if resets:
                model.state = torch.zeros(16, 8)
            train(model, optimizer, steps=3)
    assert [each for each in found_by(seen) if each == "state-lost-on-reload"] == expected


def test_buffers_of_a_copy_that_went_its_own_way_are_in_the_file():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
        other = copy.deepcopy(model)
        with torch.no_grad():
            other[1].running_mean.add_(1.0)
            other[1].running_var.mul_(2.0)
            other[1].num_batches_tracked.add_(3)
        torch.save(other.state_dict(), io.BytesIO())
        assert named(seen.findings) == []
        torch.save(dict(model.named_parameters()), io.BytesIO())
        assert named(seen.findings) == ["state-lost-on-reload"]


class Fourier(nn.Module):
    """Random features, kept in one way or another."""

    def __init__(self, keep):
        super().__init__()
        keep(self)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        turned = x @ self.table
        return self.head(torch.cat([turned.sin(), turned.cos()], 1))


def as_a_buffer(module):
    module.register_buffer("table", torch.randn(6, 8))


def as_a_buffer_that_is_not_saved(module):
    module.register_buffer("table", torch.randn(6, 8), persistent=False)


def as_an_attribute(module):
    module.table = 2 * torch.randn(6, 8)


def from_a_seed(module):
    table = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    module.register_buffer("table", table, persistent=False)


@pytest.mark.parametrize(
    ("keep", "lost"),
    [(as_an_attribute, True), (as_a_buffer_that_is_not_saved, True), (as_a_buffer, False), (from_a_seed, False)],
)
def test_a_table_that_is_drawn_when_a_model_is_built_belongs_into_its_state(keep, lost):
    with surefoot.watch() as seen:
        model = Fourier(keep)
        train(model, adam(model))
    assert ("state-lost-on-reload" in found_by(seen)) == lost


def test_a_file_with_all_parameters_and_no_running_statistics_is_named():
    assert saved(lambda model, _: {n: p.detach() for n, p in model.named_parameters()}) == ["state-lost-on-reload"]
    assert saved(lambda model, _: {n: p.detach() for n, p in model[0].named_parameters()}) == []
    assert saved(lambda model, _: model.state_dict()) == []


@pytest.mark.parametrize("counts", [True, False])
def test_a_number_that_a_forward_counts_and_depends_on_is_lost(counts):
    class Fading(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.seen = normed_net(), 0

        def forward(self, x):
            self.seen += 1
            return self.net(x) * (1 + 1 / self.seen if counts else 1)

    model = Fading()
    with surefoot.watch(model) as seen:
        optimizer = adam(model)
        for _ in range(3):
            step(model, optimizer)
    assert [each.check for each in seen.findings.findings] == (["state-lost-on-reload"] if counts else [])
