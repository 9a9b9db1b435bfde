"""Whether targets depend on inputs, told from chance."""

import numpy as np
import pytest

from surefoot.checks.samples.dependence import dependence
from tests.checks.loaders import KINDS, TOLD

pytestmark = pytest.mark.sweep


def test_dependence_is_told_from_chance():
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(128, 5))
    assert dependence(x, x[:, :2]) > 8
    assert dependence(TOLD.numpy(), KINDS.numpy()) > 8
    assert abs(dependence(x, drawn.normal(size=(128, 2)))) < 3
    assert dependence(x, np.ones((128, 1))) == 0
