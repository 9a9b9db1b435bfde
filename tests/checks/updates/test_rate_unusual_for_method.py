"""rate-unusual-for-method: the buggy and the fixed program, and what looks like it and is fine."""

import pytest
import torch

from tests.checks.models.adapted import adapted, network
from tests.checks.programs import named, twin
from tests.checks.text.tuned import texts, tuned


@twin("rate-unusual-for-method")
def _(buggy):
    return tuned(texts(), lr=1e-2 if buggy else 2e-5)


@pytest.mark.parametrize(
    ("rate", "is_unusual"), [(1e-7, True), (5e-5, False), (1e-2, False), (2e-2, False), (3e-2, True)]
)
def test_rates_of_adapters(rate, is_unusual):
    model = network()
    model[2].requires_grad_(False)
    assert ("rate-unusual-for-method" in named(adapted(model, lr=rate))) == is_unusual


def test_other_optimizers_and_models_with_random_weights_have_no_usual_rate():
    assert named(tuned(texts(), lr=1e-2, optimizer=torch.optim.SGD)) == []
    assert named(tuned(texts(), lr=1e-2, _name_or_path="")) == []
