"""anomaly-mode-in-training: the buggy and the fixed program, variants, and what looks like it and is fine."""

import warnings

import pytest
import torch
import torch.nn.functional as F

from tests.checks.programs import X, Y, looped, mlp, plain, twin

pytestmark = pytest.mark.sweep


@twin("anomaly-mode-in-training")
def _(buggy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(buggy):
            return plain(mlp())


def test_a_profiler_that_is_never_closed_is_mentioned():
    def body(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()

    with torch.profiler.profile():
        assert looped(body, steps=14) == ["anomaly-mode-in-training"]
    assert looped(body, steps=14) == []
