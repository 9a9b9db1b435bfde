"""unused-average: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch

from tests.checks.models.shadows import average, follow, learned, q_network
from tests.checks.programs import named, twin

pytestmark = pytest.mark.sweep


@twin("unused-average")
def _(buggy):
    model = q_network(outputs=1)
    ema = copy.deepcopy(model)
    return average(model, lambda step: follow(ema, model, 0.1), evaluated=model if buggy else ema)


@pytest.mark.parametrize("what", ["average", "trained"])
def test_what_is_saved(what, tmp_path):
    model = q_network(outputs=1)
    ema = copy.deepcopy(model)
    saved = ema if what == "average" else model
    found = average(model, lambda step: follow(ema, model, 0.1), evaluated=model,
                    save=lambda: torch.save(saved.state_dict(), tmp_path / "weights.pt"))  # fmt: skip
    assert named(found) == ([] if what == "average" else ["unused-average"])


@pytest.mark.parametrize("used", [True, False])
def test_a_table_of_averages(used):
    model, evaluated = q_network(outputs=1), q_network(outputs=1)
    shadow = {name: each.detach().clone() for name, each in model.named_parameters()}

    def after(step):
        for name, each in model.named_parameters():
            shadow[name] = 0.9 * shadow[name] + 0.1 * each.detach()
        if used:
            evaluated.load_state_dict(shadow)

    assert named(average(model, after, evaluated=evaluated if used else model)) == ([] if used else ["unused-average"])


def test_an_average_by_its_state_dict():
    model = q_network(outputs=1)
    ema = copy.deepcopy(model)

    def after(step):
        with torch.no_grad():
            for mine, theirs in zip(ema.state_dict().values(), model.state_dict().values(), strict=True):
                mine.mul_(0.9).add_(theirs, alpha=0.1)

    assert named(average(model, after, evaluated=model)) == ["unused-average"]


def test_a_target_network_is_used():
    online = q_network()
    target = copy.deepcopy(online)
    assert named(learned(online, target, lambda step: follow(target, online, 0.1))) == []
