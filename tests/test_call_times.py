"""Call times: each distinct call once, as slow as it is, and a plan that adds them up."""

import pytest
import torch

from surefoot import load_recipe, plan
from surefoot.call_times import CallTimes
from surefoot.costs.roofline import measured_time
from surefoot.hardware import Datasheet
from surefoot.hardware.here import keep_here
from surefoot.records.work import Work

aten = torch.ops.aten


def test_a_call_is_timed_once_and_a_larger_one_takes_longer():
    times = CallTimes()
    small, large = torch.ones(8, 8), torch.ones(512, 512)
    assert times.name(aten.mm.default, (small, small), {}) == times.name(aten.mm.default, (small, small), {})
    times.name(aten.mm.default, (large, large), {})
    assert list(times.seconds) == ["mm#0", "mm#1"]
    assert 0 < times.seconds["mm#0"] < times.seconds["mm#1"]


def test_what_is_too_large_or_does_not_suit_has_no_time():
    times = CallTimes(limit_bytes=1000)
    times.name(aten.mm.default, (torch.ones(64, 64), torch.ones(64, 64)), {})
    times.name(aten.mm.default, (torch.ones(2, 3), torch.ones(2, 3)), {})
    assert not times.seconds


def test_a_step_is_its_calls_and_what_each_costs_beside():
    works = [
        Work("forward", "a", "mm", "fp32", 8, 8, calls=3, call="mm#0"),
        Work("backward", "b", "add", "fp32", 0, 8, calls=2, call="add#1"),
        Work("backward", "b", "odd", "fp32", 0, 8, calls=1, call="odd#2"),
    ]
    time = measured_time(works, {"mm#0": 0.5, "add#1": 0.25}, 0.1)
    assert time.phases == pytest.approx({"forward": 1.8, "backward": 0.8})
    assert time.bounds == pytest.approx({"products": 1.5, "other operators": 0.5, "overhead": 0.6})
    assert time.seconds == pytest.approx(2.6)
    assert "no time for odd" in time.assumptions


def test_a_plan_of_a_measured_machine_has_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_here(Datasheet("here", "", {}, 1, ("a test",), kernel_seconds=1e-5))
    made = plan(load_recipe("regression"), measure=True)
    assert made.time is not None
    assert set(made.time.phases) >= {"forward", "backward", "update"}
    assert 1e-5 < made.time.seconds < 60
