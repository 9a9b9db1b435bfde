"""argument-ignored: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import numbers, on_batches, twin, whole

pytestmark = pytest.mark.sweep


def times(step: int) -> torch.Tensor:
    return whole(10, 16, seed=step)


def denoised(model, given=lambda step: (numbers(16, 4, seed=step), times(step)), steps=6):
    def loss(step):
        return F.mse_loss(model(*given(step)), numbers(16, 4, seed=step + 100))

    return on_batches(model, loss, [(n,) for n in range(steps)], optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


class Denoiser(nn.Module):
    def __init__(self, *, blind: bool):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.net = nn.Embedding(10, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        self.blind = blind

    def forward(self, x, t):
        embedded = self.embed(t)
        return self.net(x + (0 * embedded if self.blind else embedded))


@twin("argument-ignored")
def _(buggy):
    model = Denoiser(blind=buggy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch() as seen:
        for step in range(6):
            optimizer.zero_grad()
            F.mse_loss(model(numbers(16, 4, seed=step), times(step)), numbers(16, 4, seed=step + 100)).backward()
            optimizer.step()
    return seen.findings


class Gated(nn.Module):
    """The time step enters through weights that begin as zero, and stay so for one update."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.gate = nn.Embedding(10, 4), nn.Linear(4, 4)
        self.net, self.out = nn.Linear(4, 4), nn.Linear(4, 4)
        for each in (self.gate, self.out):
            nn.init.zeros_(each.weight)
            nn.init.zeros_(each.bias)

    def forward(self, x, t):
        return self.out(self.net(x) * self.gate(self.embed(t))) + x * self.out.bias


def test_a_gate_that_begins_as_zero():
    assert "argument-ignored" not in denoised(Gated(), steps=1)
    assert "argument-ignored" not in denoised(Gated(), steps=3)


class Masked(nn.Module):
    def __init__(self, *, applied: bool):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out, self.applied = nn.Embedding(20, 8), nn.Linear(8, 4), applied

    def forward(self, tokens, mask):
        h = self.embed(tokens)
        return self.out((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True) if self.applied else h.mean(1))


@pytest.mark.parametrize(("applied", "padded"), [(True, True), (False, True), (False, False)])
def test_a_mask(applied, padded):
    def given(step):
        mask = torch.ones(16, 6)
        if padded:
            mask[:8, 4:] = 0
        return whole(20, 16, 6, seed=step), mask

    found = denoised(Masked(applied=applied), given)
    assert ("argument-ignored" in found) is (padded and not applied)


class Carrying(nn.Module):
    """A model whose second argument has the given name and no effect."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 4)


class WithLabels(Carrying):
    def forward(self, x, labels):
        return self.net(x)


class WithUnused(Carrying):
    def forward(self, x, _extra):
        return self.net(x)


class WithCondition(Carrying):
    def forward(self, x, condition=None):
        return self.net(x)


class OnlyInTraining(Carrying):
    def forward(self, x, condition):
        return self.net(x + 0.1 * condition[:, None] if self.training else x)


@pytest.mark.parametrize(("kind", "reported"), [
    (WithLabels, False), (WithUnused, False), (WithCondition, True), (OnlyInTraining, False),
])  # fmt: skip
def test_arguments_that_a_model_may_ignore(kind, reported):
    assert ("argument-ignored" in denoised(kind())) is reported


def test_one_number_everywhere_says_nothing():
    def given(step):
        return numbers(16, 4, seed=step), torch.full((16,), 3)

    assert "argument-ignored" not in denoised(WithCondition(), given)


class Weighted(nn.Module):
    def __init__(self, *, weighted: bool):
        super().__init__()
        self.weighted = weighted

    def forward(self, given, target, weight):
        each = (given - target).square().mean(1)
        return (each * weight).mean() if self.weighted else each.mean()


@pytest.mark.parametrize("weighted", [True, False])
def test_a_loss_that_is_a_module(weighted):
    torch.manual_seed(0)
    model, criterion = nn.Linear(4, 4), Weighted(weighted=weighted)

    def loss(step):
        x = numbers(16, 4, seed=step)
        return criterion(model(x), x.flip(1), numbers(16, seed=step + 50).abs())

    found = on_batches(model, loss, [(n,) for n in range(4)])
    assert found == ([] if weighted else ["argument-ignored"])


class Deleting(Denoiser):
    """It takes a time step because its siblings do, and says that it does not use it."""

    def forward(self, x, t):
        del t
        return self.net(x)


def test_an_argument_that_is_deleted_is_ignored_on_purpose():
    assert denoised(Deleting(blind=True)) == []


class GraphConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 4)

    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, self.net(x))


def test_a_sparse_graph_is_no_value_to_disturb():
    adjacency = torch.eye(16).to_sparse_coo()
    model = GraphConvolution()
    assert denoised(model, lambda step: (numbers(16, 4, seed=step), adjacency)) == []
