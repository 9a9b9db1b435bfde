"""Rates that a loop sets itself, schedulers beside their optimizers, graphs that are kept, what is drawn or summed."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LinearLR

import surefoot
from surefoot.watch import watch_script
from tests.checks.test_loop_variants import looped
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, numbers, sgd

pytestmark = pytest.mark.sweep

SCRIPT = """
import math, torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(512, 4), torch.randn(512, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr={made_with})
for step in range(40):
    for part in range(4):
        rows = torch.randint(512, (16,))
        (nn.functional.mse_loss(model(x[rows]), y[rows]) / 4).backward()
    optimizer.param_groups[0]["lr"] = {rate}
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("made_with", "rate", "expected"),
    [
        (0.1, "0.1 * 0.5 * (1 + math.cos(math.pi * step / 40))", []),
        (0.1, "0.1 * 0.5 * (1 + math.cos(math.pi * min(1, 4 * step / 40)))", ["scheduler-at-wrong-rate"]),
        (0.1, "0.1 * 0.7 ** step", ["scheduler-at-wrong-rate"]),
        (0.1, "0.1 * min(1, (step + 1) / 20)", []),
        (0.1, "0.1 * min(1, (step + 1) / 4000)", ["zero-learning-rate"]),
        (1.0, "0.01 * min(1, (step + 1) / 10)", []),
        (0.1, "0.1 * (step < 10)", ["zero-learning-rate", "scheduler-at-wrong-rate"]),
    ],
)
def test_rates_that_a_loop_sets_are_judged_by_their_course(tmp_path, made_with, rate, expected):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(made_with=made_with, rate=rate))
    assert named(watch_script(str(script)).findings) == expected


@pytest.mark.parametrize("times", [1, 2])
def test_a_scheduler_moves_once_at_a_time_however_seldom(times):
    model = mlp()
    optimizer = sgd(model)
    scheduler = LambdaLR(optimizer, lambda epoch: 0.5 * (1 + math.cos(math.pi * epoch / 8)))
    with surefoot.watch(model, optimizer) as seen:
        for number in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            for _ in range(times if number % 3 == 2 else 0):
                scheduler.step()
    assert named(seen.findings) == (["scheduler-at-wrong-rate"] if times == 2 else [])


@pytest.mark.parametrize("follows", [True, False])
def test_a_scheduler_goes_with_the_optimizer_that_takes_over(follows):
    model = mlp()
    optimizer = sgd(model)
    scheduler = ExponentialLR(optimizer, 0.9)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(8):
            if number == 3:
                optimizer = sgd(model)
                scheduler = ExponentialLR(optimizer, 0.9) if follows else scheduler
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            scheduler.step()
    assert named(seen.findings) == ([] if follows else ["scheduler-out-of-order"])


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (lambda parts, logits: parts, ["kept-losses"]),
        (lambda parts, logits: (logits - 1).abs().mean(), ["kept-losses"]),
        (lambda parts, logits: logits, ["kept-losses"]),
        (lambda parts, logits: {name: part.item() for name, part in parts.items()}, []),
        (lambda parts, logits: logits.argmax(1), []),
    ],
)
def test_whatever_hangs_on_a_graph_keeps_it(keep, expected):
    history = []

    def step(model, optimizer):
        optimizer.zero_grad()
        logits = model(X)
        parts = {"fit": F.cross_entropy(logits, Y), "size": 0.01 * logits.square().mean()}
        sum(parts.values()).backward()
        optimizer.step()
        history.append(keep(parts, logits))

    assert looped(step, steps=8) == expected


def test_graphs_that_only_hold_each_other_are_not_kept():
    def step(model, optimizer):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        ring = [loss]
        ring.append(ring)
        loss.backward()
        optimizer.step()

    assert looped(step, steps=8) == []


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


@pytest.mark.parametrize("own_array", [True, False])
def test_an_array_that_a_forward_was_given_stays_as_it_is_until_backward(own_array):
    array = np.zeros((8, 4), dtype=np.float32)

    def step(model, optimizer):
        optimizer.zero_grad()
        losses = []
        for part in (X, X.flip(0)):
            given = array.copy() if own_array else array
            given[:] = part.numpy()
            losses.append(F.cross_entropy(model(torch.from_numpy(given)), Y))
        sum(losses).backward()
        optimizer.step()

    assert looped(step) == ([] if own_array else ["overwritten-saved-tensor"])


class Drawing(nn.Module):
    """An encoder, a draw, a decoder."""

    def __init__(self, draw):
        super().__init__()
        self.encoder, self.decoder, self.draw = nn.Linear(4, 6), nn.Linear(3, 4), draw

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        posterior = Independent(Normal(mean, F.softplus(spread) + 0.1), 1)
        return self.decoder(torch.tanh(self.draw(posterior))), posterior


@pytest.mark.parametrize("draw", ["rsample", "sample"])
@pytest.mark.parametrize("scored", [True, False])
def test_what_a_decoder_is_given_is_drawn_with_its_gradient(draw, scored):
    drawn = []

    def take(posterior):
        drawn[:] = [getattr(posterior, draw)()]
        return drawn[-1]

    def step(model, optimizer):
        optimizer.zero_grad()
        rebuilt, posterior = model(X)
        error = (rebuilt - X).square().sum(1)
        size = 0.1 * posterior.base_dist.loc.square().mean()
        loss = error.mean() + size
        if scored:
            loss = loss + (posterior.log_prob(drawn[-1].detach()) * error.detach()).mean()
        loss.backward()
        optimizer.step()

    found = looped(step, model=Drawing(take))
    assert found == (["detached-layers"] if draw == "sample" and not scored else [])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("in_place", [True, False])
def test_an_average_of_weights_needs_more_than_half_precision(dtype, in_place):
    model = mlp()
    average = {name: each.detach().to(dtype) for name, each in model.state_dict().items()}

    def step(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        for name, each in model.state_dict().items():
            if in_place:
                average[name].mul_(0.99).add_(each.to(dtype), alpha=0.01)
            else:
                average[name] = 0.99 * average[name] + 0.01 * each.to(dtype)

    assert looped(step, model=model) == (["low-precision-running-sum"] if dtype == torch.bfloat16 else [])


@pytest.mark.parametrize("rebuilt", [True, False])
def test_an_optimizer_goes_with_a_model_that_is_replaced(rebuilt):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(8):
            if number == 3:
                model = copy.deepcopy(model)
                optimizer = sgd(model) if rebuilt else optimizer
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if rebuilt else ["optimizer-of-other-parameters"])


@pytest.mark.parametrize("right", [True, False])
def test_sums_are_divided_by_the_count_of_all_parts_and_not_of_the_first(right):
    parts = [(X[:5], Y[:5].clone()), (numbers(5, 4), Y[:5].clone())]
    parts[1][1][4] = -100

    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in parts:
            (F.cross_entropy(model(x), y, reduction="sum") / (9 if right else 5)).backward()
        optimizer.step()

    assert looped(step) == ([] if right else ["summed-micro-batches"])


@pytest.mark.parametrize("per_update", [True, False])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: LambdaLR(optimizer, lambda step: 1 - step / 24),
        lambda optimizer: LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / 24))),
        lambda optimizer: LinearLR(optimizer, 1.0, 0.01, total_iters=24),
    ],
)
def test_the_end_of_a_schedule_is_known_though_it_says_none(schedule, per_update):
    model = mlp()
    optimizer = sgd(model)
    scheduler = schedule(optimizer)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(24):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if per_update or number % 8 == 7:
                scheduler.step()
    assert named(seen.findings) == ([] if per_update else ["scheduler-at-wrong-rate"])


@pytest.mark.parametrize("whole", [True, False])
def test_a_part_of_a_loss_is_back_propagated_once(whole):
    def step(model, optimizer):
        optimizer.zero_grad()
        logits = model(X)
        fit, size = F.cross_entropy(logits, Y), 0.01 * logits.square().mean()
        fit.backward(retain_graph=True)
        (fit + size if whole else size).backward()
        optimizer.step()

    assert looped(step) == (["repeated-backward"] if whole else [])


@pytest.mark.parametrize("cleared", [True, False])
def test_weights_moved_by_hand_use_a_gradient_once(cleared):
    model = mlp()
    with surefoot.watch(model) as seen:
        for _ in range(8):
            F.cross_entropy(model(X), Y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None if cleared else p.grad
    assert named(seen.findings) == ([] if cleared else ["missing-zero-grad"])


class Followed(nn.Module):
    """A head on layers that are trained, and a slow copy of it that moves in every forward."""

    def __init__(self, *, through: bool):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.through = nn.Linear(4, 6), nn.Linear(6, 2), through
        self.slow = nn.Linear(6, 2).requires_grad_(False)

    def forward(self, x):
        hidden = self.body(x).relu()
        for slow, quick in zip(self.slow.parameters(), self.head.parameters(), strict=True):
            slow.data.mul_(0.9).add_(quick.data, alpha=0.1)
        with torch.set_grad_enabled(self.through):
            aim = self.slow(hidden)
        return self.head(hidden) - 0.1 * aim


@pytest.mark.parametrize("through", [False, True])
def test_a_slow_copy_may_move_between_two_forwards_and_the_backward(through):
    model = Followed(through=through)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            (F.cross_entropy(model(X), Y) + F.cross_entropy(model(X + 0.1), Y)).backward()
            optimizer.step()
    found = [each.check for each in seen.findings.findings]
    assert ("overwritten-saved-tensor" in found) is through
