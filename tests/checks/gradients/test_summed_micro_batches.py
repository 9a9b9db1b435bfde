"""summed-micro-batches: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.gradients.programs import PARTS, accumulated
from tests.checks.precision.programs import EARLY, in_half_precision
from tests.checks.programs import Module, X, Y, looped, mlp, named, numbers, sgd, twin, whole


@twin("summed-micro-batches")
def _(buggy):
    return accumulated(1 if buggy else 4)


@pytest.mark.sweep
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


@pytest.mark.sweep
def test_a_mean_may_be_a_likelihood_whose_sign_is_turned():
    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in ((X[:4], Y[:4]), (X[4:], Y[4:])):
            (-model(x).log_softmax(1).gather(1, y[:, None]).mean()).backward()
        optimizer.step()

    assert looped(step) == ["summed-micro-batches"]


@pytest.mark.sweep
def test_both_sides_of_a_game_are_no_micro_batches():
    model = nn.Linear(4, 1)
    optimizer = sgd(model)

    def sides(*targets):
        with surefoot.watch(model, optimizer) as seen:
            for n in range(4):
                optimizer.zero_grad()
                for place, target in enumerate(targets):
                    logits = model(numbers(8, 4, seed=10 * n + place))
                    F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target)).backward()
                optimizer.step()
        return named(seen.findings)

    assert sides(0.0, 1.0) == []
    assert "summed-micro-batches" in sides(0.3, 0.3)


@pytest.mark.sweep
@pytest.mark.parametrize(("divided", "expected"), [(True, []), (False, ["summed-micro-batches"])])
def test_inner_steps_are_no_micro_batches(divided, expected):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = sgd(model)

    def loss(weights, seed):
        x = numbers(6, 1, seed=seed)
        return F.mse_loss(torch.func.functional_call(model, weights, (x,)), torch.sin(x))

    with surefoot.watch(model, optimizer) as seen:
        for step in range(4):
            optimizer.zero_grad()
            for task in range(3):
                weights = dict(model.named_parameters())
                inner = torch.autograd.grad(loss(weights, 9 * step + task), list(weights.values()))
                moved = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), inner, strict=True)}
                (loss(moved, 90 * step + task) / (3 if divided else 1)).backward()
            optimizer.step()
    assert named(seen.findings) == expected


@pytest.mark.sweep
@pytest.mark.parametrize("function", [F.cross_entropy, lambda x, y: F.cross_entropy(x, y, reduction="none").mean()])
def test_means_of_micro_batches_are_known_however_they_are_taken(function):
    def step(parts, divided_by):
        def body(model, optimizer):
            optimizer.zero_grad()
            for x, y in parts:
                (function(model(x), y) / divided_by).backward()
            optimizer.step()

        return body

    even = [(X[:4], Y[:4]), (X[4:], Y[4:])]
    assert looped(step(even, 1)) == ["summed-micro-batches"]
    assert looped(step(even, 2)) == []


@pytest.mark.sweep
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


@pytest.mark.parametrize("divided", [True, False])
def test_micro_batches_are_summed_with_a_scaler_too(divided):
    model = mlp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for x, y in zip(X.chunk(2), Y.chunk(2), strict=True):
                scaler.scale(F.cross_entropy(model(x), y) / (2 if divided else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [each.check for each in seen.findings.findings] == ([] if divided else ["summed-micro-batches"])


@pytest.mark.sweep
@pytest.mark.parametrize("apart", [True, False])
def test_tasks_with_heads_of_their_own_are_no_micro_batches(apart):
    body, heads = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.ModuleList(nn.Linear(8, 2) for _ in range(2))
    model = nn.ModuleList([body, heads])
    optimizer = sgd(model)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for task, (x, y) in enumerate(zip(*PARTS, strict=True)):
                F.cross_entropy(heads[task if apart else 0](body(x)), y).backward()
            optimizer.step()
    assert ("summed-micro-batches" in named(seen.findings)) is not apart


@pytest.mark.sweep
@pytest.mark.parametrize("loaders", [1, 2])
def test_a_batch_from_each_loader_is_no_micro_batch(loaders):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        data = [TensorDataset(numbers(32, 4, seed=seed), whole(2, 32, seed=seed)) for seed in range(loaders)]
        streams = [iter(DataLoader(each, 4, shuffle=True)) for each in data]
        for _ in range(4):
            optimizer.zero_grad()
            for number in range(2):
                x, y = next(streams[number % loaders])
                F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert ("summed-micro-batches" in named(seen.findings)) is (loaders == 1)


@pytest.mark.sweep
@pytest.mark.parametrize("same", [True, False])
def test_two_looks_at_the_same_targets_are_no_micro_batches(same):
    x, y = numbers(16, 4), whole(2, 16)

    def step(model, optimizer):
        optimizer.zero_grad()
        for shown, target in ((x, y), (x + 0.1 * torch.randn_like(x), y if same else y.flip(0))):
            F.cross_entropy(model(shown), target).backward()
        optimizer.step()

    assert ("summed-micro-batches" in looped(step)) is not same


@pytest.mark.sweep
@pytest.mark.parametrize("goes_on", [True, False])
def test_parts_of_a_sequence_are_no_micro_batches(goes_on):
    model = Module(lambda self, x, h: self.cell(x, h), cell=lambda: nn.GRU(4, 4, batch_first=True))
    series = numbers(8, 12, 4)

    def step(model, optimizer):
        optimizer.zero_grad()
        h = torch.zeros(1, 8, 4)
        for start in (0, 5):
            out, last = model(series[:, start : start + 5], h)
            F.mse_loss(out, series[:, start + 1 : start + 6]).backward()
            h = last.detach() if goes_on else h
        optimizer.step()

    assert ("summed-micro-batches" in looped(step, model=model)) is not goes_on


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("joined", "found"),
    [
        (lambda main, beside: main + 0.2 * beside, True),
        (lambda main, beside: sum([0.5 * beside, main]), True),
        (lambda main, beside: (main + 0.2 * beside) / 1, True),
        (lambda main, beside: (main + 0.2 * beside) / 2, False),
        (lambda main, beside: main / 2 + 0.1 * beside, False),
        (lambda main, beside: (2 * main + beside) / 2, False),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_losses_of_two_terms_are_summed_too(joined, found, scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale > 1)

    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in zip(*PARTS, strict=True):
            logits = model(x)
            scaler.scale(joined(F.cross_entropy(logits, y), F.smooth_l1_loss(logits[:, 0], x[:, 0]))).backward()
        scaler.step(optimizer)
        scaler.update()

    assert ("summed-micro-batches" in looped(step)) is found


@pytest.mark.sweep
@pytest.mark.parametrize("same", [True, False])
def test_two_looks_at_a_batch_with_two_terms_are_no_micro_batches(same):
    x, y = numbers(16, 4), whole(2, 16)

    def step(model, optimizer):
        optimizer.zero_grad()
        for shown, target in ((x, y), (x + 0.1 * torch.randn_like(x), y if same else y.flip(0))):
            logits = model(shown)
            (F.cross_entropy(logits, target) + 0.1 * F.mse_loss(logits[:, 0], shown[:, 0])).backward()
        optimizer.step()

    assert ("summed-micro-batches" in looped(step)) is not same


@pytest.mark.sweep
@EARLY
@pytest.mark.parametrize("divided", [True, False])
def test_micro_batches_of_updates_that_are_left_out_count_as_those_of_others(divided):
    found = in_half_precision(2.0**24, steps=24, rows=PARTS[0], targets=PARTS[1], weight=1 / 2 if divided else 1.0)
    assert found == ([] if divided else ["summed-micro-batches"])
