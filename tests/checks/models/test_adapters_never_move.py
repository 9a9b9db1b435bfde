"""adapters-never-move: the buggy and the fixed program, and what looks like it and is fine."""

import torch

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


def test_adapters_that_were_trained_before_may_stay():
    model = network()
    with torch.no_grad():
        model[0].up.fill_(0.1)
    model[0].requires_grad_(False)
    assert named(adapted(model)) == []
