"""linear-layers-in-a-row: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
from torch import nn

from tests.checks.programs import named, plain, twin, whole

pytestmark = pytest.mark.sweep


@twin("linear-layers-in-a-row")
def _(buggy):
    between = [] if buggy else [nn.ReLU()]
    return plain(nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 2)))


def test_factors_that_are_narrower_than_what_they_join_are_two_layers():
    assert named(plain(nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 3)), y=whole(3, 8))) == []


@pytest.mark.parametrize("between", [nn.Dropout(0.1), nn.Flatten(), nn.Identity(), nn.GELU()])
def test_linear_layers_with_nothing_that_bends_between_them(between):
    expected = [] if isinstance(between, nn.GELU) else ["linear-layers-in-a-row"]
    assert named(plain(nn.Sequential(nn.Linear(4, 8), between, nn.Linear(8, 2)))) == expected
