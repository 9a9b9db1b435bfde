"""broadcast-loss: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest

from tests.checks.losses.programs import YES, binary, of_one
from tests.checks.programs import mlp, numbers, plain, twin

pytestmark = pytest.mark.sweep


@twin("broadcast-loss")
def _(buggy):
    return plain(mlp(classes=1), y=numbers(8), loss=lambda h, y: ((h if buggy else h.squeeze(-1)) - y).pow(2).mean())


def test_a_product_can_spread_as_a_difference_does():
    assert of_one(binary, y=YES[:, 0]) == ["broadcast-loss"]
