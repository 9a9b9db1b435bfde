"""A model that is run again on copies stays as it was."""

import pytest
import torch
from torch import nn

from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.rerun import Again
from surefoot.checks.engine.scene import Scene
from surefoot.events.phases import Phases
from tests.checks.programs import X

pytestmark = pytest.mark.sweep


def test_a_model_that_is_probed_while_training_keeps_its_running_statistics():
    """Or outputs before and after that would differ for all samples, as if these were mixed."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    again = Again(Scene(Phases()), Captured.of(model, (X,), {}, [], None, 0))
    before = again()
    again(training=True)
    assert torch.equal(before[0], again()[0])
