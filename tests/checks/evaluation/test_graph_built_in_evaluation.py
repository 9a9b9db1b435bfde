"""graph-built-in-evaluation: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, found_by, mlp, named, plain, sgd, twin
from tests.checks.saved_state.programs import adam, net, train

pytestmark = pytest.mark.sweep


@twin("graph-built-in-evaluation")
def _(buggy):
    model = mlp(nn.Dropout(0.1))
    totals = []

    def evaluate(step):
        model.eval()
        with torch.set_grad_enabled(buggy):
            totals.append(sum(F.cross_entropy(model(X + n), Y) for n in range(2)))
        model.train()

    return plain(model, steps=6, after=evaluate)


@pytest.mark.parametrize("kept", [True, False])
def test_an_evaluation_that_keeps_its_graphs_is_told_from_one_that_builds_them(kept):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model.train()(X), Y).backward()
            optimizer.step()
        model.eval()
        total = 0.0
        for part in X.split(1):
            loss = F.mse_loss(model(part), torch.zeros(1, 2))
            total = total + (loss if kept else loss.item())
    (finding,) = seen.findings.findings
    assert (finding.check, finding.severity) == ("graph-built-in-evaluation", "warning" if kept else "info")


@pytest.mark.parametrize("adapted", [True, False])
def test_copies_that_are_adapted_to_a_task_of_the_evaluation_need_their_graphs(adapted):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if step % 6 == 5:
                copy = {name: each.detach().requires_grad_() for name, each in model.named_parameters()}
                for _ in range(5):
                    loss = F.cross_entropy(torch.func.functional_call(model, copy, (X,)), Y)
                    if adapted:
                        slopes = torch.autograd.grad(loss, list(copy.values()))
                        copy = {
                            name: each - 0.1 * slope for (name, each), slope in zip(copy.items(), slopes, strict=True)
                        }
    assert named(seen.findings) == ([] if adapted else ["graph-built-in-evaluation"])


@pytest.mark.parametrize("graphs", [True, False])
def test_an_evaluation_without_a_mode_that_builds_graphs_is_mentioned(graphs):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        for _ in range(2):
            train(model, optimizer, steps=6)
            with torch.set_grad_enabled(graphs):
                for each in torch.randn(32, 6).split(4):
                    model(each)
    assert found_by(seen) == (["graph-built-in-evaluation"] if graphs else [])
