"""The gradient of a loss by its direction: which loss it is, and whether it has its sign."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.losses.gradient_signature import signature_of
from tests.checks.programs import numbers

pytestmark = pytest.mark.sweep


def gradient(loss, prediction: torch.Tensor) -> torch.Tensor:
    prediction = prediction.clone().requires_grad_()
    return torch.autograd.grad(loss(prediction), prediction)[0]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 9), rows=st.integers(6, 40), scale=st.floats(0.1, 5))
def test_the_gradient_of_a_cross_entropy_is_known_by_its_direction(seed, classes, rows, scale):
    given = numbers(rows, classes, seed=seed) * scale
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(seed))
    seen = signature_of(given, gradient(lambda out: F.cross_entropy(out, target), given), target)
    against = signature_of(given, gradient(lambda out: -F.cross_entropy(out, target), given), target)
    assert seen is not None
    assert (seen.kind, seen.sign, seen.values) == ("classes", 1, "numbers")
    assert against is not None
    assert against.sign == -1


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), rows=st.integers(6, 40))
def test_a_gradient_that_has_nothing_to_do_with_a_target_has_no_signature(seed, rows):
    given, other = numbers(rows, 5, seed=seed), numbers(rows, 5, seed=seed + 1)
    assert signature_of(given, other, numbers(rows, 5, seed=seed + 2)) is None
