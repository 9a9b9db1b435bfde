"""A model that is run again on copies stays as it was."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from surefoot.checks.engine.rerun import Again
from tests.checks.programs import X

pytestmark = pytest.mark.sweep


def test_a_model_that_is_probed_while_training_keeps_its_running_statistics():
    """Or outputs before and after that would differ for all samples, as if these were mixed."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    call = SimpleNamespace(model=model, args=(X,), kwargs={}, autocast=None)
    again = Again(None, call)
    before = again()
    again(training=True)
    assert torch.equal(before[0], again()[0])
