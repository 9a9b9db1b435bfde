"""ctc-input-not-log-probabilities: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import Module, mlp, numbers, on_steps, plain, twin, whole

pytestmark = pytest.mark.sweep


@twin("ctc-input-not-log-probabilities")
def _(buggy):
    model = Module(lambda self, x: self.end(x), end=lambda: nn.Linear(4, 5))

    def loss(h, y):
        given = h if buggy else h.log_softmax(-1)
        return F.ctc_loss(given, y, torch.full((3,), 12), torch.full((3,), 4))

    return plain(model, x=numbers(12, 3, 4), y=1 + whole(4, 3, 4), loss=loss)


@pytest.mark.parametrize("logs", [True, False])
def test_behind_its_length_a_sample_of_ctc_may_hold_anything(logs):
    speech, lengths = numbers(8, 6, 4), torch.tensor([6, 5, 4, 6, 6, 5, 4, 6])
    mask = (torch.arange(6) < lengths[:, None])[..., None]

    def loss(model, step):
        out = model(speech + step)
        out = (out.log_softmax(-1) if logs else out).masked_fill(~mask, 0.0)
        return F.ctc_loss(out.transpose(0, 1), torch.ones(8, 2, dtype=torch.long), lengths, torch.full((8,), 2))

    assert ("ctc-input-not-log-probabilities" in on_steps(mlp(classes=5), loss)) is not logs
