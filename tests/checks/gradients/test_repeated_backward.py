"""repeated-backward: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, looped, mlp, named, sgd, twin


@twin("repeated-backward")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward(retain_graph=buggy)
            if buggy:
                loss.backward()
            optimizer.step()
    return seen.findings


@pytest.mark.sweep
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


@pytest.mark.sweep
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


@pytest.mark.parametrize("twice", [True, False])
def test_a_loss_that_is_scaled_and_back_propagated_twice_is_seen(twice):
    model = mlp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            scaler.scale(loss / 2).backward(retain_graph=twice)
            if twice:
                scaler.scale(loss / 2).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [each.check for each in seen.findings.findings] == (["repeated-backward"] if twice else [])
