"""Sound programs that look like several bugs are clean."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, plain


class Teacher(nn.Module):
    """Hides a frozen teacher in a list on purpose."""

    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(4, 2).requires_grad_(False)]
        self.student = mlp()
        self.also_listed = [self.student[0]]

    def forward(self, x):
        return self.student(x) + self.hidden[0](x)


class Attending(nn.Module):
    """A softmax inside, with a layer between it and the loss."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(F.softmax(self.score(x), -1) * x)


def in_eval(model, *, train_again: bool):
    model.eval()
    if train_again:
        model.train()
    return plain(model)


def accumulating():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(6):
            (F.cross_entropy(model(X), Y) / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    return seen.findings


def adversarial_game():
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    makers, judges = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    with surefoot.watch() as seen:
        for _ in range(3):
            judges.zero_grad()
            (judge(X).mean() - judge(maker(X).detach()).mean()).backward()
            judges.step()
            makers.zero_grad()
            judge(maker(X)).mean().backward()
            makers.step()
    return seen.findings


def frozen_norm():
    model = mlp(nn.BatchNorm1d(8))
    model[2].eval()
    return plain(model)


def frozen_part():
    model = mlp(nn.Dropout(0.1))
    model[0].requires_grad_(False)
    return plain(model, optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))


def evaluating_between():
    model = mlp(nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                model(X)
    return seen.findings


def gradient_of_the_input():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            x = X.clone().requires_grad_()
            F.cross_entropy(model(x), Y).backward()
            optimizer.zero_grad()
            F.cross_entropy(model(X + 0.01 * x.grad.sign()), Y).backward()
            optimizer.step()
    return seen.findings


def by_hand():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = None
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    return seen.findings


def second_order_optimizer():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        return loss

    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.step(closure)
    return seen.findings


LOOK_ALIKES = [
    accumulating, adversarial_game, frozen_norm, frozen_part, evaluating_between, gradient_of_the_input, by_hand,
    second_order_optimizer, lambda: plain(Teacher()), lambda: plain(Attending()),
    lambda: in_eval(mlp(), train_again=False), lambda: in_eval(mlp(nn.Dropout(0.0)), train_again=False),
]  # fmt: skip


@pytest.mark.parametrize("program", LOOK_ALIKES, ids=lambda f: f.__name__)
def test_look_alikes_are_clean(program):
    assert program().findings == ()
