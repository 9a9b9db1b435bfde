"""constant-targets: the buggy and the fixed program, variants, and what looks like it and is fine."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD, by_permutation, stepped, trained
from tests.checks.losses.programs import one_hot
from tests.checks.programs import Y, mlp, named, numbers, on_batches, plain, sgd, twin
from tests.checks.samples.programs import classified, told

pytestmark = pytest.mark.sweep


@twin("constant-targets")
def _(buggy):
    return plain(mlp(), y=torch.zeros(8, dtype=torch.long) if buggy else torch.tensor([0, 1] * 4))


def test_constant_targets_of_a_loss_by_hand():
    assert named(plain(mlp(), loss=one_hot, y=torch.ones_like(Y), steps=6)) == ["constant-targets"]


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("loss", [F.mse_loss, lambda a, b: (a - b).abs().mean()])
def test_constant_targets_of_a_regression(loss, lost):
    def batch(step):
        x, y = by_permutation(step)
        return x, torch.zeros(16, 3) if lost else F.one_hot(y, 3) + 0.5 * x[:, :3]

    assert stepped(batch, loss=loss) == (["constant-targets"] if lost else [])


def test_derivatives_that_are_to_be_zero_are_no_constant_targets():
    def residual(prediction, y):
        return F.mse_loss(prediction.diff(dim=0), torch.zeros(15, 3))

    assert stepped(by_permutation, loss=residual) == []


def answered(*, lost):
    """Two questions about each sample, of which one may always have the same answer."""
    kinds = torch.zeros_like(KINDS) if lost else KINDS
    loader = DataLoader(TensorDataset(TOLD, kinds, TOLD.sin().mean(1)), 16, shuffle=True)
    model = mlp(inputs=6, classes=4)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for x, kind, size in loader:
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out[:, :3], kind)
            (loss + F.mse_loss(out[:, 3], size)).backward()
            optimizer.step()
    return named(seen.findings)


def test_one_of_several_losses_whose_targets_are_all_the_same():
    assert answered(lost=True) == ["constant-targets"]
    assert answered(lost=False) == []


class Scored(nn.Module):
    """Scores of candidates, by one set of weights or by one for each place."""

    def __init__(self, *, alike):
        super().__init__()
        self.score = mlp(classes=1) if alike else mlp(inputs=12, classes=3)
        self.alike = alike

    def forward(self, x):
        return self.score(x).squeeze(-1) if self.alike else self.score(x.flatten(1))


@pytest.mark.parametrize(("alike", "found"), [(True, []), (False, ["constant-targets"])])
def test_the_first_candidate_may_always_be_the_answer(alike, found):
    data = TensorDataset(numbers(96, 3, 4), torch.zeros(96, dtype=torch.long))
    assert told(DataLoader(data, 8, shuffle=True), classified, model=Scored(alike=alike)) == found


def test_a_fixed_judge_may_be_asked_for_one_class():
    judge = mlp().requires_grad_(False)
    data = TensorDataset(numbers(96, 4), torch.zeros(96, dtype=torch.long))
    found = told(
        DataLoader(data, 8, shuffle=True),
        lambda model, batch: classified(lambda x: judge(x + model(x)), batch),
        model=mlp(classes=4),
    )
    assert "constant-targets" not in found


@pytest.mark.parametrize("solved", [True, False])
def test_borders_may_be_zero(solved):
    model = mlp(inputs=2, classes=1)
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(6):
            points, border = numbers(16, 2, seed=step).requires_grad_(), numbers(16, 2, seed=100 + step)
            loss = F.mse_loss(model(border), torch.zeros(16, 1))
            if solved:
                slope = torch.autograd.grad(model(points).sum(), points, create_graph=True)[0]
                loss = loss + (slope[:, 0] - points[:, 1]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert ("constant-targets" in named(seen.findings)) is not solved


def test_scores_of_candidates_whose_first_is_the_true_one_are_no_constant_targets():
    model = nn.Linear(4, 6)
    first = torch.zeros(8, dtype=torch.long)

    def contrast(x, others):
        near, far = model(x), model(others)
        logits = torch.cat([(near * model(x + 0.1)).sum(1, keepdim=True), near @ far.T], 1)
        return F.cross_entropy(logits / 0.5, first)

    def classes(x, _):
        return F.cross_entropy(model(x), first)

    batches = [(numbers(8, 4, seed=n), numbers(8, 4, seed=n + 50)) for n in range(8)]
    assert on_batches(model, contrast, batches) == []
    assert on_batches(model, classes, batches) == ["constant-targets"]


def test_a_score_that_is_to_be_above_another_has_no_constant_target():
    model = nn.Linear(4, 1)
    batches = [(numbers(8, 4, seed=n), numbers(8, 4, seed=n + 50)) for n in range(8)]

    def above(x, other):
        return F.binary_cross_entropy_with_logits(model(x) - model(other), torch.ones(8, 1))

    def always(x, _):
        return F.binary_cross_entropy_with_logits(model(x), torch.ones(8, 1))

    assert on_batches(model, above, batches) == []
    assert on_batches(model, always, batches) == ["constant-targets"]


@pytest.mark.parametrize("by_hand", [True, False])
def test_scores_of_candidates_that_a_model_returns_have_no_constant_targets(by_hand):
    class Pairs(nn.Module):
        """Scores of one true candidate and of many others, the true one first."""

        def __init__(self):
            super().__init__()
            self.layer, self.others = nn.Linear(4, 6), nn.Buffer(F.normalize(numbers(6, 16), dim=0))

        def forward(self, x, near):
            found, true = F.normalize(self.layer(x), dim=1), F.normalize(self.layer(near), dim=1).detach()
            return torch.cat([(found * true).sum(1, keepdim=True), found @ self.others], 1) / 0.2

    model, first = Pairs(), torch.zeros(8, dtype=torch.long)

    def loss(x):
        logits = model(x, x + 0.1)
        return -logits.log_softmax(1)[torch.arange(8), first].mean() if by_hand else F.cross_entropy(logits, first)

    assert on_batches(model, loss, [(numbers(8, 4, seed=n),) for n in range(8)]) == []


def test_targets_that_are_alike_are_judged_by_how_alike_the_labels_are():
    few, lost = torch.zeros(COUNT, dtype=torch.long), lambda x, y: F.cross_entropy(x, torch.zeros_like(y))
    few[0] = 1  # most samples are of one class
    assert named(trained(DataLoader(TensorDataset(INPUTS, few), 8, sampler=range(8, 40)))) == []
    assert named(trained(DataLoader(TensorDataset(INPUTS, LABELS), 8, shuffle=True), loss=lost)) == ["constant-targets"]


def test_a_recipe_whose_labels_are_lost_is_named_though_few_samples_are_seen(small_recipe):
    recipe = small_recipe("fashion")

    def lost(model, batch):
        return recipe.loss(model, (batch[0], torch.zeros_like(batch[1])))

    assert "constant-targets" in named(surefoot.check(dataclasses.replace(recipe, loss=lost)))
