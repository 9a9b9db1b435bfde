"""eval-mode-in-training: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.evaluation.programs import body, trained_with_pauses
from tests.checks.programs import X, Y, mlp, on_batches, plain, twin

pytestmark = pytest.mark.sweep


@twin("eval-mode-in-training")
def _(buggy):
    model = mlp(nn.Dropout(0.5))
    model.train(not buggy)
    return plain(model)


def test_gradients_of_an_attack_in_evaluation_mode_train_nothing():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))

    def attack():
        model.eval()
        F.cross_entropy(model(X), Y).backward()
        model.train()

    batches = [(X, Y)] * 4
    assert on_batches(model, lambda x, y: F.cross_entropy(model(x), y), batches, before=attack) == []
    loop = [(X, Y)] * 4
    assert on_batches(model.eval(), lambda x, y: F.cross_entropy(model(x), y), loop) == ["eval-mode-in-training"]


class Probed(nn.Module):
    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.body, self.head = body().requires_grad_(not frozen), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize(("frozen", "expected"), [(True, []), (False, ["eval-mode-in-training"])])
def test_a_head_on_frozen_features_may_be_trained_in_evaluation_mode(frozen, expected):
    assert trained_with_pauses(Probed(frozen=frozen).eval()) == expected


def test_an_encoder_may_keep_its_statistics_while_a_head_is_trained():
    def found(encoder: nn.Module) -> list[str]:
        head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 2))
        return trained_with_pauses(encoder.eval(), head=head, loss=lambda x: head(encoder(x)))

    assert found(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))) == []
    assert found(body()) == ["eval-mode-in-training"]


def asked(model, loss):
    torch.autograd.grad(loss, list(model.parameters()))


def by_hand(model, loss):
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None


@pytest.mark.parametrize("measure", [by_hand, asked])
def test_gradients_that_are_only_measured_train_nothing(measure):
    model = nn.Sequential(body(), nn.Linear(8, 2))

    def between(x, y):
        model.eval()
        measure(model, F.cross_entropy(model(x), y))
        model.train()

    assert trained_with_pauses(model, between=between) == []


@pytest.mark.parametrize("alone", [True, False])
def test_no_remedy_switches_the_dropout_of_a_teacher_on(alone):
    teacher, student = (nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2)) for _ in range(2))
    teacher.eval()
    optimizer = torch.optim.SGD([*teacher.parameters(), *student.parameters()], lr=0.1)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            out = teacher(X) if alone else student(X)
            loss = F.cross_entropy(out, Y)
            if not alone:
                loss = loss + F.kl_div(out.log_softmax(1), teacher(X).softmax(1), reduction="batchmean")
            loss.backward()
            optimizer.step()
    (finding,) = [each for each in seen.findings.findings if each.check == "eval-mode-in-training"]
    assert finding.remedy.startswith(
        "call model.train() before training" if alone else "if teacher (Sequential) is a teacher"
    )
