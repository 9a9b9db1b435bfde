"""leftover-micro-batches: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.loaders import INPUTS, LABELS, loader
from tests.checks.programs import X, Y, looped, mlp, named, numbers, sgd, twin, whole

pytestmark = pytest.mark.sweep


@twin("leftover-micro-batches")
def _(buggy):
    model = mlp()
    optimizer, batches = sgd(model), loader(shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for number, (x, y) in enumerate(batches):
                (F.cross_entropy(model(x), y) / 2).backward()
                if number % 2 or (not buggy and number + 1 == len(batches)):
                    optimizer.step()
                    optimizer.zero_grad()
    return seen.findings


def test_gradients_are_left_over_in_a_loop_that_counts_its_batches():
    def left(batches: int) -> list[str]:
        model = mlp()
        optimizer = sgd(model)
        loader = DataLoader(TensorDataset(INPUTS[: 8 * batches], LABELS[: 8 * batches]), 8, shuffle=True)
        with surefoot.watch(model, optimizer) as seen:
            for _ in range(3):
                read = iter(loader)
                for number in range(1, len(loader) + 1):
                    x, y = next(read)
                    (torch.nn.functional.cross_entropy(model(x), y) / 2).backward()
                    if number % 2 == 0:
                        optimizer.step()
                        optimizer.zero_grad()
        return named(seen.findings)

    assert "leftover-micro-batches" in left(3)
    assert left(4) == []


@pytest.mark.parametrize(("left", "found"), [("leaks", True), ("cleared", True), ("used", False)])
def test_what_is_left_of_a_pass_is_found_without_a_loader(left, found):
    def body(model, optimizer):
        for number, rows in enumerate(torch.arange(8).repeat(9, 1)):
            (F.cross_entropy(model(X[rows]), Y[rows]) / 2).backward()
            if number % 2 or (left == "used" and number == 8):
                optimizer.step()
                optimizer.zero_grad()
        if left == "cleared":
            optimizer.zero_grad()

    assert ("leftover-micro-batches" in looped(body, steps=3)) is found


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_accumulation_may_go_on_from_pass_to_pass(goes_on):
    model = mlp()
    optimizer = sgd(model)
    count = 0
    with surefoot.watch(model, optimizer) as seen:
        loader = DataLoader(TensorDataset(numbers(44, 4), whole(2, 44)), 4, shuffle=True)
        for _ in range(6):
            count = count if goes_on else 0
            for x, y in loader:
                (F.cross_entropy(model(x), y) / 4).backward()
                count += 1
                if count % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    assert named(seen.findings) == ([] if goes_on else ["leftover-micro-batches"])


def test_one_more_loss_now_and_then_is_no_leftover():
    numbers_seen = []

    def step(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        (0.1 * model(X + 1).square().mean()).backward()
        if len(numbers_seen) % 6 == 5:
            (1e-3 * sum(p.square().sum() for p in model.parameters())).backward()
        optimizer.step()
        numbers_seen.append(1)

    assert "leftover-micro-batches" not in looped(step, steps=18)
