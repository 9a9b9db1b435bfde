"""aliased-copy: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch.nn.functional as F
from torch import nn

from tests.checks.models.shadows import Agent, average, follow, learned, q_network
from tests.checks.programs import named, twin

pytestmark = pytest.mark.sweep


@twin("aliased-copy")
def _(buggy):
    online = q_network()
    target = online if buggy else copy.deepcopy(online)
    return learned(online, target, lambda step: step % 4 == 3 and target.load_state_dict(online.state_dict()))


def test_a_shallow_copy():
    online = q_network()
    target = copy.copy(online)
    found = learned(online, target, lambda step: follow(target, online, 0.1))
    assert named(found) == ["aliased-copy"]
    assert found.findings[0].where == "target"


def test_tensors_that_are_joined_at_an_update():
    online = q_network()
    target = copy.deepcopy(online)

    def join(step):
        for mine, theirs in zip(target.parameters(), online.parameters(), strict=True):
            mine.data = theirs.data

    assert named(learned(online, target, join)) == ["aliased-copy"]


@pytest.mark.parametrize("joined", [True, False])
def test_attributes_of_an_agent(joined):
    agent = Agent(joined=joined)
    found = learned(agent.online, agent.target, lambda step: joined or follow(agent.target, agent.online, 0.1))
    assert named(found) == (["aliased-copy"] if joined else [])


class Pair(nn.Module):
    """One encoder, shared or by two names."""

    def __init__(self, first: str, second: str):
        super().__init__()
        encoder = q_network(outputs=4)
        setattr(self, first, encoder)
        setattr(self, second, encoder)
        self.first, self.second = first, second

    def forward(self, x):
        return getattr(self, self.first)(x) + 0.1 * getattr(self, self.second)(x + 1).detach()


@pytest.mark.parametrize(("first", "second", "reported"), [
    ("online", "target", True), ("source", "target", False), ("src", "tgt", False), ("left", "right", False),
])  # fmt: skip
def test_one_encoder_by_two_names_inside_a_model(first, second, reported):
    model = Pair(first, second)
    found = average(model, lambda step: None, loss=lambda x: F.mse_loss(model(x), x))
    assert named(found) == (["aliased-copy"] if reported else [])


def test_two_plain_names_of_one_network():
    model = q_network(outputs=1)
    net = model
    assert named(average(net, lambda step: None, evaluated=model)) == []


def test_a_function_that_calls_the_trained_network_its_target():
    model = q_network(outputs=1)

    def train(target):
        return average(target, lambda step: None, evaluated=target)

    assert named(train(model)) == []
