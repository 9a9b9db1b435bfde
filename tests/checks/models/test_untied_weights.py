"""untied-weights: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Module, named, numbers, plain, sgd, twin, whole
from tests.checks.texts import TEXT, Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("untied-weights")
def _(buggy):
    model = Tokens()
    if buggy:
        model.head.weight.data = model.embed.weight.data.clone()
    else:
        nn.init.normal_(model.embed.weight, std=0.02)
        model.head.weight = model.embed.weight
    return plain(model, x=TEXT[:, :-1], y=TEXT[:, 1:], loss=per_token)


@pytest.mark.parametrize("copied", [True, False])
def test_matrices_may_begin_as_the_same_square(copied):
    def forward(model, x):
        return (x @ model.moves @ model.seen)[:, :2]

    model = Module(forward)
    first = numbers(4, 4) if copied else torch.eye(4)
    model.moves, model.seen = nn.Parameter(first.clone()), nn.Parameter(first.clone())
    assert ("untied-weights" in named(plain(model))) is copied


class Tied(nn.Module):
    """Tokens in, tokens out, by one matrix; `undo` takes it apart."""

    def __init__(self, undo=lambda self: None):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.middle, self.end = nn.Embedding(10, 6), nn.Linear(6, 6), nn.Linear(6, 10, bias=False)
        self.end.weight = self.embed.weight
        undo(self)

    def forward(self, tokens):
        return self.end(self.middle(self.embed(tokens)).relu())


def _draw_anew(self):
    self.end.weight = nn.Parameter(torch.randn(10, 6) * 0.3)


def _of_tokens(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


@pytest.mark.parametrize(("undo", "expected"), [(lambda self: None, []), (_draw_anew, ["untied-weights"])])
def test_a_tie_that_is_undone(undo, expected):
    tokens, following = whole(10, 8, 5), whole(10, 8, 5, seed=1)
    optimizer = None
    with surefoot.watch() as seen:
        model = Tied(undo)
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            _of_tokens(model(tokens), following).backward()
            optimizer.step()
        assert named(seen.findings) == expected


def trained_on_tokens(model) -> list[str]:
    return named(plain(model, x=whole(10, 8, 5), y=whole(10, 8, 5, seed=1), loss=_of_tokens))


def test_a_copy_of_an_embedding_that_is_no_linear_layer():
    def model(copied):
        made = Module(
            lambda self, t: self.middle(self.embed(t)).relu() @ self.out,
            embed=lambda: nn.Embedding(10, 6),
            middle=lambda: nn.Linear(6, 6),
        )
        start = made.embed.weight.detach().t().clone() if copied else numbers(6, 10)
        made.out = nn.Parameter(start)
        return made

    assert trained_on_tokens(model(False)) == []
    assert trained_on_tokens(model(True)) == ["untied-weights"]
