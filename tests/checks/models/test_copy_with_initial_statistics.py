"""copy-with-initial-statistics: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

from tests.checks.models.shadows import average, follow, q_network, states
from tests.checks.programs import named, twin

pytestmark = pytest.mark.sweep


@twin("copy-with-initial-statistics")
def _(buggy):
    model = q_network(nn.BatchNorm1d(8), outputs=1)
    ema = copy.deepcopy(model)
    return average(model, lambda step: follow(ema, model, 0.1, buffers=not buggy), evaluated=ema)


@pytest.mark.parametrize("how", ["left out", "collected"])
def test_statistics_that_are_collected_before_the_evaluation(how):
    model = q_network(nn.BatchNorm1d(8), outputs=1)
    ema, batches = copy.deepcopy(model), [states(n) for n in range(3)]

    def after(step):
        follow(ema, model, 0.1)
        if how == "collected":
            update_bn(batches, ema)

    found = average(model, after, evaluated=ema)
    assert named(found) == (["copy-with-initial-statistics"] if how == "left out" else [])


def test_an_averaged_model_of_torch():
    model = q_network(nn.BatchNorm1d(8), outputs=1)
    averaged = AveragedModel(model)
    assert named(average(model, lambda step: averaged.update_parameters(model), evaluated=averaged)) == []


def test_a_copy_that_collects_statistics_itself():
    model = q_network(nn.BatchNorm1d(8), outputs=1)
    ema = copy.deepcopy(model)

    def after(step):
        follow(ema, model, 0.1)
        ema(states(step)).sum().item()

    assert "copy-with-initial-statistics" not in named(average(model, after, evaluated=ema))
