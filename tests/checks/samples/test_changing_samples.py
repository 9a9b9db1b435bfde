"""changing-samples: the buggy and the fixed program, variants, and what looks like it and is fine."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.checks.loaders import trained
from tests.checks.programs import twin
from tests.checks.samples.programs import Changing, Samples, classified, told

pytestmark = pytest.mark.sweep


@twin("changing-samples")
def _(buggy):
    return trained(DataLoader(Changing(buggy), 8, shuffle=True))


def noted(of, index):
    if not of.done[index]:
        of.kept[index], of.done[index] = of.x[index].tanh(), True
    return of.kept[index], of.y[index]


def piled_up(of, index):
    of.kept[index] += 0.1 * torch.randn(4)
    return of.kept[index].clone(), of.y[index]


@pytest.mark.parametrize(("make", "found"), [(noted, []), (piled_up, ["changing-samples"])])
def test_a_data_set_may_keep_what_it_has_made(make, found):
    data = Samples(make)
    data.kept, data.done = torch.zeros(64, 4), np.zeros(64, bool)
    assert told(DataLoader(data, 8, shuffle=True), classified) == found
