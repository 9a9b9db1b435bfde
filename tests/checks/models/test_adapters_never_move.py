"""adapters-never-move: the buggy and the fixed program, and what looks like it and is fine."""

import pytest
from torch import nn

from tests.checks.models.adapted import adapted, network
from tests.checks.programs import named, twin


@twin("adapters-never-move")
def _(buggy):
    return adapted(network(both_zero=buggy))


def test_frozen_adapters_beside_a_head_that_learns():
    model = network()
    model[0].requires_grad_(False)
    assert named(adapted(model)) == ["adapters-never-move"]


def test_adapters_outside_the_optimizer_are_named_by_that_cause_alone():
    model = network()
    assert named(adapted(model, parameters=list(model[2].parameters()))) == ["parameter-outside-optimizer"]


def test_a_rate_of_zero_has_a_name_of_its_own():
    assert named(adapted(network(), lr=0.0)) == ["zero-learning-rate"]


@pytest.mark.parametrize(("first", "expected"), [(0.1, []), (0.0, ["adapters-never-move"])])
def test_adapters_that_were_trained_before_may_stay(first, expected):
    import peft

    body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model = peft.get_peft_model(body, peft.LoraConfig(r=2, target_modules=["0"])).requires_grad_(False)
    model.base_model.model[0].lora_B["default"].weight.fill_(first)
    model.base_model.model[2].requires_grad_(True)
    assert named(adapted(model)) == expected
