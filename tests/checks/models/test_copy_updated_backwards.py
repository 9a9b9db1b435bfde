"""copy-updated-backwards: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch

from tests.checks.models.shadows import average, follow, learned, q_network
from tests.checks.programs import named, twin

pytestmark = pytest.mark.sweep


@twin("copy-updated-backwards")
def _(buggy):
    model = q_network(outputs=1)
    ema = copy.deepcopy(model)
    return average(model, lambda step: follow(ema, model, 0.99 if buggy else 0.01), evaluated=ema)


@pytest.mark.parametrize("share", [0.9, 0.995, 0.999])
def test_the_share_is_named(share):
    online = q_network()
    target = copy.deepcopy(online)
    found = learned(online, target, lambda step: follow(target, online, share))
    assert named(found) == ["copy-updated-backwards"]
    assert f"takes {share:.4g} of online" in found.findings[0].seen


@pytest.mark.parametrize("way", ["warming up", "whole", "half"])
def test_shares_that_are_meant(way):
    online = q_network()
    target = copy.deepcopy(online)
    share = {"warming up": lambda step: 1 - min(0.99, (1 + step) / (10 + step)), "whole": lambda _: 1.0,
             "half": lambda _: 0.5}[way]  # fmt: skip
    assert named(learned(online, target, lambda step: follow(target, online, share(step)))) == []


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_the_trained_network_is_overwritten(share):
    online = q_network()
    target = copy.deepcopy(online)
    found = learned(online, target, lambda step: step % 3 == 2 and follow(online, target, share))
    assert named(found) == ["copy-updated-backwards"]
    assert found.findings[0].where == "online"


def test_slow_and_fast_weights_meet():
    fast = q_network(outputs=1)
    slow = copy.deepcopy(fast)

    def after(step):
        if step % 4 == 3:
            follow(slow, fast, 0.5)
            fast.load_state_dict(slow.state_dict())

    assert named(average(fast, after, evaluated=slow)) == []


def test_weights_that_are_exchanged_for_an_evaluation():
    model = q_network(outputs=1)
    ema = copy.deepcopy(model)

    def after(step):
        follow(ema, model, 0.05)
        kept = copy.deepcopy(model.state_dict())
        model.load_state_dict(ema.state_dict())
        with torch.no_grad():
            model(torch.ones(4, 4)).sum().item()
        model.load_state_dict(kept)

    assert named(average(model, after)) == []
