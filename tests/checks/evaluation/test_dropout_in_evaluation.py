"""dropout-in-evaluation: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Module, X, Y, mlp, named, plain, sgd, twin, two_layers

pytestmark = pytest.mark.sweep


@twin("dropout-in-evaluation")
def _(buggy):
    def forward(self, x):
        return self.end(F.dropout(x, 0.5, training=True if buggy else self.training))

    return plain(Module(forward, end=lambda: nn.Linear(4, 2)))


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (lambda self, h: torch.rand_like(h) > 0.2, ["dropout-in-evaluation"]),
        (lambda self, h: torch.bernoulli(torch.full_like(h, 0.8)), ["dropout-in-evaluation"]),
        (lambda self, h: torch.rand_like(h) > 0.2 if self.training else 1.0, []),
        (lambda self, h: 1 + 0.1 * torch.randn_like(h), []),
    ],
)
def test_a_mask_by_hand(mask, expected):
    assert named(plain(two_layers(lambda self, h: h * mask(self, h)))) == expected


class AlwaysDropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        return self.net(F.dropout(x, 0.3, training=True))


@pytest.mark.parametrize("times", [1, 8])
def test_one_batch_evaluated_many_times_is_a_measurement_whatever_the_mode(times):
    model = AlwaysDropping()
    with surefoot.watch() as seen:
        optimizer = sgd(model)
        for step in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model(X + step), Y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            torch.stack([model(X - 9).softmax(1) for _ in range(times)]).mean(0)
    assert named(seen.findings) == ([] if times > 1 else ["dropout-in-evaluation"])
