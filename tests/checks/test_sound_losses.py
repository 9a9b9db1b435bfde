"""Losses and graphs of sound programs that look like bugs, each beside the bug that it looks like."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, numbers, plain, sgd, whole

pytestmark = pytest.mark.sweep

MANY, ANSWERS = numbers(32, 4, seed=2), whole(2, 32, seed=3).float()


def trained(model, loss, steps=8):
    """Steps on a loss that is made of the model and the number of the step."""
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch() as seen:
        for step in range(steps):
            optimizer.zero_grad()
            loss(model, step).backward()
            optimizer.step()
    return named(seen.findings)


class Apart(nn.Module):
    """The distance between two things, or how alike they are."""

    def __init__(self, *, alike=False):
        super().__init__()
        self.net, self.alike = mlp(), alike

    def forward(self, x):
        first, second = self.net(x).split(16)
        return (first * second).sum(1) if self.alike else (first - second).square().sum(1).add(1e-6).sqrt()


@pytest.mark.parametrize("alike", [True, False])
def test_a_distance_falls_where_the_answer_is_yes(alike):
    same = ANSWERS[:16]

    def loss(model, step):
        apart = model(MANY + step)
        return (same * apart - (1 - same) * apart).mean()

    assert ("negated-loss" in trained(Apart(alike=alike), loss)) is alike


@pytest.mark.parametrize("searched", [True, False])
def test_an_input_may_be_changed_to_mislead_a_model(searched):
    model, change = mlp(), torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([change] if searched else model.parameters(), lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            (-F.cross_entropy(model(X + change), Y)).backward()
            optimizer.step()
    assert ("negated-loss" in named(seen.findings)) is not searched


@pytest.mark.parametrize("turned", [True, False])
def test_gradients_may_be_turned_by_hand(turned):
    body, task, ward = mlp(classes=6), nn.Linear(6, 2), nn.Linear(6, 3)
    optimizer, wards = torch.optim.SGD([*body.parameters(), *task.parameters(), *ward.parameters()], 0.1), whole(3, 8)
    with surefoot.watch() as seen:
        for step in range(8):
            optimizer.zero_grad()
            code = body(X + step)
            (F.cross_entropy(task(code), Y) - 0.1 * F.cross_entropy(ward(code), wards)).backward()
            for each in ward.parameters() if turned else ():
                each.grad.mul_(-10)
            optimizer.step()
    assert ("negated-loss" in named(seen.findings)) is not turned


class Featured(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = mlp(classes=4), nn.Linear(4, 2)

    def forward(self, x):
        with torch.no_grad():
            features = self.body(x)
        return self.head(features)


@pytest.mark.parametrize("resting", [True, False])
def test_a_body_in_evaluation_mode_only_gives_features(resting):
    model = Featured()
    model.body.train(not resting)
    assert named(plain(model)) == ([] if resting else ["detached-layers"])


@pytest.mark.parametrize("own", [True, False])
def test_what_a_reference_gives_is_a_constant(own):
    model = mlp()
    reference = model if own else copy.deepcopy(model)

    def loss(model, step):
        logs = model(X + step).log_softmax(-1)
        with torch.no_grad():
            shares = reference(X + step).softmax(-1)
            entropy = (shares * shares.log()).sum(-1)
        return (entropy + F.cross_entropy(logs, Y, reduction="none")).mean()

    assert ("loss-term-without-gradient" in trained(model, loss, steps=12)) is own


@pytest.mark.parametrize("cleared", [True, False])
def test_gradients_that_were_cleared_are_not_added_twice(cleared):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X + step), Y)
            loss.backward(retain_graph=True)
            if cleared:
                optimizer.zero_grad()
            (2 * loss).backward()
            optimizer.step()
    assert ("repeated-backward" in named(seen.findings)) is not cleared


@pytest.mark.parametrize("copied", [True, False])
def test_copies_learn_by_hand_for_one_update(copied):
    model, other = mlp(), mlp()
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for step in range(4):
            optimizer.zero_grad()
            fast = copy.deepcopy(model) if copied else other
            F.cross_entropy(fast(X + step), Y).backward()
            for each, given in zip(model.parameters(), fast.parameters(), strict=True):
                each.grad = given.grad.clone()
            F.cross_entropy(model(X + step), Y).backward()
            optimizer.step()
    assert ("gradients-into-fixed-network" in named(seen.findings)) is not copied


class Recurring(nn.Module):
    """One block, many times, each of which is computed anew in backward."""

    def __init__(self, *, counts=False):
        super().__init__()
        self.block, self.head, self.counts, self.calls = nn.Linear(4, 4), nn.Linear(4, 2), counts, 0

    def _turn(self, x):
        self.calls += self.counts
        return torch.tanh(self.block(x * (1 + 0.1 * self.calls)))

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self._turn, x, use_reentrant=False)
        return self.head(x)


@pytest.mark.parametrize("counts", [True, False])
def test_a_block_that_runs_many_times_is_run_again_in_another_order(counts):
    assert ("recomputation-differs" in named(plain(Recurring(counts=counts)))) is counts


class Weighed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given, target, slope):
        ctx.save_for_backward(given, target)
        ctx.slope = slope
        return (given - target).square().mean()

    @staticmethod
    def backward(ctx, gradient):
        given, target = ctx.saved_tensors
        return gradient * ctx.slope * (given - target) / given.numel(), None, None


@pytest.mark.parametrize("slope", [2, 1])
def test_a_target_has_no_gradient(slope):
    found = named(plain(mlp(), loss=lambda out, y: Weighed.apply(out, F.one_hot(y, 2).float(), slope)))
    assert found == ([] if slope == 2 else ["wrong-custom-backward"])


class Raised(nn.Module):
    """Logits a little above zero, or shares."""

    def __init__(self, *, squeezed):
        super().__init__()
        self.own, self.squeezed = nn.Embedding(8, 1), squeezed
        nn.init.normal_(self.own.weight, std=0.01)

    def forward(self, x):
        out = self.own(torch.arange(8)).squeeze(1) + 0.4
        return torch.sigmoid(out) if self.squeezed else out


@pytest.mark.parametrize("squeezed", [True, False])
def test_logits_may_happen_to_lie_between_0_and_1(squeezed):
    def by_hand(out, y):
        return (F.softplus(out) - y.float() * out).mean()

    found = named(plain(Raised(squeezed=squeezed), loss=by_hand))
    assert ("sigmoid-before-bce-with-logits" in found) is squeezed


@pytest.mark.parametrize("make", [F.logsigmoid, torch.sigmoid])
def test_a_divergence_of_yes_and_no_sums_to_nothing(make):
    shares = numbers(8, 2, seed=1).sigmoid()
    found = named(plain(mlp(), loss=lambda out, _: F.kl_div(make(out), shares, reduction="batchmean")))
    assert ("probabilities-in-kl-div" in found) is (make is torch.sigmoid)


@pytest.mark.parametrize("logs", [True, False])
def test_the_mean_of_log_probabilities_is_bounded(logs):
    def loss(out, y):
        parts = [out, 0.5 * out]
        return F.nll_loss(torch.stack([each.log_softmax(1) if logs else each for each in parts]).mean(0), y)

    assert ("logits-in-nll-loss" in named(plain(mlp(), loss=loss))) is not logs


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_batch_may_lack_the_targets_of_one_task(reduction):
    model = mlp(classes=4)

    def loss(model, step):
        out, marks = model(X + step), torch.full((8,), -1) if step == 3 else Y
        second = F.cross_entropy(out[:, 2:], marks, ignore_index=-1, reduction=reduction)
        return F.cross_entropy(out[:, :2], Y) + 0.1 * second

    assert ("all-targets-ignored" in trained(model, loss)) is (reduction == "mean")


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


def _still(optimizer):
    """An update that writes to nothing that a graph has saved."""
    kept = [(each, each.data) for group in optimizer.param_groups for each in group["params"]]
    for each, values in kept:
        each.data = values.clone()
    optimizer.step()


@pytest.mark.parametrize("begins", [True, False])
def test_an_optimizer_may_wait_for_its_loss(begins):
    model, other = mlp(), mlp()
    first, second = sgd(model), sgd(other)
    with surefoot.watch() as seen:
        for step in range(16):
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(model(X + step), Y).backward()
            loss = F.cross_entropy(other(X + step), Y)
            if begins and step > 13:
                loss.backward()
            first.step()
            second.step()
    assert ("update-without-gradients" in named(seen.findings)) is not begins


@pytest.mark.parametrize("logs", [True, False])
def test_behind_its_length_a_sample_of_ctc_may_hold_anything(logs):
    speech, lengths = numbers(8, 6, 4), torch.tensor([6, 5, 4, 6, 6, 5, 4, 6])
    mask = (torch.arange(6) < lengths[:, None])[..., None]

    def loss(model, step):
        out = model(speech + step)
        out = (out.log_softmax(-1) if logs else out).masked_fill(~mask, 0.0)
        return F.ctc_loss(out.transpose(0, 1), torch.ones(8, 2, dtype=torch.long), lengths, torch.full((8,), 2))

    assert ("ctc-input-not-log-probabilities" in trained(mlp(classes=5), loss)) is not logs


@pytest.mark.parametrize("kept", [True, False])
def test_variables_of_a_training_before_hold_its_last_graphs(kept):
    losses = []
    with surefoot.watch() as seen:
        for stage in range(3):
            model = mlp()
            optimizer = sgd(model)
            for step in range(6):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(X + step), Y)
                loss.backward()
                optimizer.step()
                losses += [loss] if kept or step == 5 else []
            assert stage < 3
    assert ("kept-losses" in named(seen.findings)) is kept
