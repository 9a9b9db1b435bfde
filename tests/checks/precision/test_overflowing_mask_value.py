"""overflowing-mask-value: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import Module, X, Y, looped, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("overflowing-mask-value")
def _(buggy):
    def forward(self, x):
        mask = torch.zeros(4).half()
        scores = self.score(x).half() + (mask * (-1e9 if buggy else -1e4))
        return self.end(torch.nan_to_num(scores.float()).softmax(-1) * x)

    return plain(Module(forward, score=lambda: nn.Linear(4, 4), end=lambda: nn.Linear(4, 2)))


FILLS = {
    "cast": (lambda s, m: s.masked_fill(m, -1e9).half(), ["overflowing-mask-value"]),
    "added": (lambda s, m: s.half() + m.half() * -1e9, ["overflowing-mask-value"]),
    "chosen": (lambda s, m: torch.where(m, -1e9, s.half()), ["overflowing-mask-value"]),
    "lowest": (lambda s, m: s.half().masked_fill(m, torch.finfo(torch.float16).min), []),
}


@pytest.mark.parametrize("form", FILLS)
def test_values_that_half_precision_does_not_hold(form):
    filled, expected = FILLS[form]

    def forward(self, x):
        mask = torch.zeros(len(x), len(x)).fill_diagonal_(1).bool()
        weights = filled(torch.zeros(len(x), len(x)), mask).float().softmax(-1)
        return self.body(x) + 0 * weights.sum()

    assert named(plain(Module(forward, body=mlp))) == expected


@pytest.mark.parametrize(("filled", "expected"), [(0.0, []), (None, ["overflowing-mask-value"])])
def test_rows_without_an_entry_may_be_filled(filled, expected):
    mask = torch.tensor([[True] * 4, [False] * 4]).repeat(4, 1)

    def step(model, optimizer):
        optimizer.zero_grad()
        weights = (model(X).repeat(1, 2)).masked_fill(mask, -torch.inf).softmax(-1)
        weights = weights if filled is None else weights.nan_to_num(filled)
        F.cross_entropy((weights * X)[:, :2], Y).backward()
        optimizer.step()

    assert looped(step) == expected
