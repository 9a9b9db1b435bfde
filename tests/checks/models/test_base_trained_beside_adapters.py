"""base-trained-beside-adapters: the buggy and the fixed program, and what looks like it and is fine."""

import pytest
from torch import nn

from tests.checks.models.adapted import adapted, network
from tests.checks.programs import named, twin


@twin("base-trained-beside-adapters")
def _(buggy):
    model = network()
    model[0].layer.weight.requires_grad_(buggy)
    return adapted(model)


def test_a_base_that_the_optimizer_holds_frozen_does_not_move():
    model = network()
    assert named(adapted(model, parameters=list(model.parameters()))) == []


@pytest.mark.parametrize("buggy", [False, True])
def test_peft_adapters_are_known(buggy):
    import peft

    body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model = peft.get_peft_model(body, peft.LoraConfig(r=2, target_modules=["0"]))
    model.base_model.model[0].base_layer.requires_grad_(buggy)
    assert named(adapted(model)) == (["base-trained-beside-adapters"] if buggy else [])
