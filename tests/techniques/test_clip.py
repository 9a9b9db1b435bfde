"""Clip: the norm before and after, measured and computed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.techniques.clip import clip, norm_after


def parameters(*gradients: list[float]) -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.zeros(len(each))) for each in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return [*made, torch.nn.Parameter(torch.zeros(3))]  # the last has no gradient


def test_the_norm_is_over_all_gradients():
    assert clip(parameters([3.0], [0.0, 4.0]), None) == 5.0
    assert clip([torch.nn.Parameter(torch.zeros(3))], 1.0) == 0.0


@given(
    gradient=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=8),
    max_norm=st.floats(0.01, 200) | st.none(),
)
def test_the_norm_after_is_what_clipping_leaves(gradient, max_norm):
    made = parameters(gradient)
    before = clip(made, None).item()
    assert clip(made, max_norm).item() == before
    assert norm_after(before, max_norm) == pytest.approx(clip(made, None).item(), rel=1e-5, abs=1e-6)
