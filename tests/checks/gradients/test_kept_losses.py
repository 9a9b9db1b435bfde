"""kept-losses: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, looped, mlp, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("kept-losses")
def _(buggy):
    model, kept = mlp(), []
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(8):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
            kept.append(loss if buggy else loss.item())
    return seen.findings


def test_weights_that_a_step_makes_and_puts_into_a_model_are_kept_by_nobody():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(8):
            slopes = torch.autograd.grad(F.cross_entropy(model(X), Y), list(model.parameters()))
            moved = [p - 0.1 * slope for p, slope in zip(model.parameters(), slopes, strict=True)]
            fitted = dict(zip(dict(model.named_parameters()), moved, strict=True))
            optimizer.zero_grad()
            F.cross_entropy(torch.func.functional_call(model, fitted, (X,)), Y).backward()
            optimizer.step()
    assert "kept-losses" not in named(seen.findings)


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
