"""training-mode-in-evaluation: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.evaluation.programs import ANSWERS, EXAMPLES, body, trained_with_pauses
from tests.checks.loaders import TOLD, by_permutation, stepped
from tests.checks.programs import X, found_by, mlp, named, numbers, plain, sgd, twin
from tests.checks.saved_state.programs import adam, train

pytestmark = pytest.mark.sweep


@twin("training-mode-in-evaluation")
def _(buggy):
    model = mlp(nn.Dropout(0.5))

    def evaluate(_):
        model.train(buggy)
        with torch.no_grad():
            for number in range(3):
                model(X + number).argmax(1)
        model.train()

    return plain(model, after=evaluate)


@pytest.mark.parametrize(("every", "mode", "expected"), [(10, True, 1), (10, False, 0), (1, True, 0)])
def test_a_lone_forward_in_training_mode_is_an_evaluation_if_it_is_rare(every, mode, expected):
    def evaluate(model):
        model.train(mode)
        with torch.no_grad():
            model(TOLD[128:]).argmax(1)
        model.train()

    found = stepped(by_permutation, model=mlp(nn.Dropout(0.5), inputs=6, classes=3), evaluate=evaluate, every=every)
    assert found == ["training-mode-in-evaluation"] * expected


@pytest.mark.parametrize(("every", "mode", "expected"), [(5, True, True), (5, False, False), (1, True, False)])
def test_a_copy_of_a_model_is_evaluated_in_evaluation_mode(every, mode, expected):
    model = mlp(nn.Dropout(0.5), inputs=6, classes=3)
    average = copy.deepcopy(model).requires_grad_(False).train(mode)

    def evaluate(_):
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.1)
            for x in TOLD[128:].split(32):
                average(x).argmax(1)

    found = stepped(by_permutation, model=model, evaluate=evaluate, every=every)
    assert ("training-mode-in-evaluation" in found) is expected


def test_the_mean_of_several_views_is_a_pseudo_label():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for n in range(8):
            x = numbers(16, 4, seed=n)
            with torch.no_grad():
                guess = (model(x + 0.1).softmax(1) + model(x - 0.1).softmax(1)) / 2
            optimizer.zero_grad()
            F.mse_loss(model(x).softmax(1), guess).backward()
            optimizer.step()
    assert named(seen.findings) == []


@pytest.mark.parametrize(("looked_at", "expected"), [(False, []), (True, ["training-mode-in-evaluation"])])
def test_forwards_whose_results_nobody_looks_at_collect_statistics(looked_at, expected):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def warm_up(_):
        with torch.no_grad():
            kept = [model(numbers(8, 4, seed=n)) for n in range(3)]
        if looked_at:
            torch.cat(kept).argmax(1)

    assert named(plain(model, after=warm_up)) == expected


def dropout_alone(model):
    model.eval()
    for module in model.modules():
        module.train(isinstance(module, nn.Dropout))


def evaluated(evaluate, *, prepare=None) -> list[str]:
    """What is said of a model that is evaluated without gradients after every pass."""
    model = nn.Sequential(body(), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for rows in torch.randperm(64).split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(EXAMPLES[rows]), ANSWERS[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                if prepare is not None:
                    prepare(model)
                evaluate(model)
            model.train()
    return found_by(seen)


def one_pass(model):
    return [float((model(part).argmax(1) == 0).sum()) for part in EXAMPLES[64:].split(16)]


def test_dropout_that_is_measured_runs_as_one_batch_or_alone():
    assert evaluated(lambda model: model(EXAMPLES[64:72].repeat(4, 1)).softmax(1).view(4, 8, 2).mean(0)) == []
    assert evaluated(one_pass, prepare=dropout_alone) == []
    assert evaluated(one_pass) == ["training-mode-in-evaluation"]


@pytest.mark.parametrize(("views", "every"), [(4, 1), (1, 5)])
def test_what_is_asked_about_the_batch_that_is_trained_on_is_no_evaluation(views, every):
    model = nn.Sequential(body(), nn.Linear(8, 2))
    count = iter(range(1000))

    def guess(x, y):
        if next(count) % every == 0:
            with torch.no_grad():
                sum(model(x + 0.1 * torch.randn_like(x)).softmax(1) for _ in range(views)).argmax(1)

    assert trained_with_pauses(model, between=guess) == []


@pytest.mark.parametrize(("modes", "expected"), [(True, []), (False, ["training-mode-in-evaluation"])])
def test_a_last_look_at_the_same_batch_makes_an_evaluation_no_measurement_of_noise(modes, expected):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    held = torch.randn(16, 6)

    def evaluate() -> None:
        model.train(not modes)
        with torch.no_grad():
            model(held).argmax(1)
        model.train()

    with surefoot.watch() as seen:
        optimizer = adam(model)
        for _ in range(2):
            train(model, optimizer, steps=6)
            evaluate()
        evaluate()
    assert found_by(seen) == expected


@pytest.mark.parametrize("of_copy", [True, False])
def test_the_remedy_for_a_copy_leaves_it_in_evaluation_mode(of_copy):
    model = mlp(nn.Dropout(0.5))
    measured = copy.deepcopy(model).requires_grad_(False) if of_copy else model

    def evaluate(step):
        with torch.no_grad():
            for number in range(1 + (step == 6)) if step == 6 else ():
                measured(X + number).argmax(1)

    (finding,) = plain(model, steps=8, after=evaluate).findings
    assert finding.check == "training-mode-in-evaluation"
    assert ("train()" in finding.remedy) is not of_copy
    assert "2 forward calls" in finding.seen
