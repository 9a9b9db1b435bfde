"""The interval of a predicted step: from the errors of like steps, never one bare number."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from surefoot.costs.interval import KNOWN_DEVICE, OTHER_DEVICE, kind_of, with_interval
from surefoot.costs.run_cost import run_cost
from surefoot.costs.time_constants import Constants, Spread, constants
from surefoot.hardware import cluster, datasheet, known_devices
from surefoot.records.step_time import Interval, StepTime
from surefoot.reports.console import as_text
from surefoot.reports.plan_time import dollars_text


def test_a_kind_is_a_device_that_runs_were_fitted_to_or_another():
    assert {kind_of(datasheet(name)) for name in ("h100-sxm", "a100-pcie-40gb", "h100-hbm2e-96gb")} == {KNOWN_DEVICE}
    assert {kind_of(datasheet(name)) for name in ("l4", "b200-sxm", "mi300x")} == {OTHER_DEVICE}


def test_the_interval_is_the_spread_of_like_steps_around_the_prediction():
    fitted = replace(constants(), spreads={KNOWN_DEVICE: Spread(0.9, 1.3, 12, 4, "why")})
    assert with_interval(StepTime(2.0), KNOWN_DEVICE, fitted).interval == Interval(1.8, 2.6, "why")
    assert with_interval(StepTime(2.0), OTHER_DEVICE, fitted).interval is None


def test_every_kind_has_a_spread_that_holds_the_prediction():
    spreads = constants().spreads
    assert set(spreads) == {"known device", "other device", "rehearsed", "here", "compiled memory"}
    for kind, spread in spreads.items():
        assert 0 < spread.low < spread.middle < spread.high, kind
        assert spread.runs >= 5, kind
        assert str(spread.runs) in spread.of, kind


SECONDS = st.floats(1e-7, 1e7)
PARTS = st.dictionaries(st.sampled_from(["forward", "backward", "update"]), SECONDS, min_size=1)


@given(parts=PARTS, kind=st.sampled_from(sorted(set(constants().spreads) - {"compiled memory"})))
def test_a_predicted_time_lies_inside_its_interval_and_is_the_sum_of_its_parts(parts, kind):
    time = with_interval(StepTime(sum(parts.values()), parts, flops_only_seconds=1e-9), kind)
    assert time.interval.low_seconds <= time.seconds <= time.interval.high_seconds
    assert sum(time.phases.values()) == pytest.approx(time.seconds)
    assert time.flops_only_seconds == 1e-9


def test_a_model_that_errs_on_one_side_is_corrected_and_says_so():
    fitted = replace(constants(), spreads={KNOWN_DEVICE: Spread(1.5, 5.0, 20, 1, "why", middle=2.5)})
    time = with_interval(StepTime(2.0, {"forward": 2.0}, assumptions=("rates",)), KNOWN_DEVICE, fitted)
    assert (time.seconds, time.phases, time.interval) == (5.0, {"forward": 5.0}, Interval(3.0, 10.0, "why"))
    assert time.assumptions[1].startswith("real steps take 2.5 times as long as these rates allow")


def test_constants_are_shares_and_small_times():
    fitted = constants()
    shares = [*fitted.product_share.values(), fitted.memory_share, fitted.fused_share, fitted.link_share]
    assert all(0.3 <= share <= 1 for share in shares)
    assert 0 <= fitted.beside_share <= 1
    assert 1e-6 <= fitted.host_seconds <= 3e-5


def test_a_run_is_as_uncertain_as_its_steps():
    machines = cluster("8xh100-sxm", dollars_per_hour=2.0)
    cost = run_cost(machines, steps=10, tokens_per_step=1, step_seconds=2.0, step_interval=Interval(1.8, 2.6, ""))
    assert (cost.low, cost.high) == (pytest.approx(0.9), pytest.approx(1.3))
    assert dollars_text(replace(cost, dollars=1000.0)) == "1,000 dollars (900 to 1,300)"
    assert dollars_text(replace(cost, dollars=1e-5)) == "less than 0.01 dollars"


@pytest.fixture(scope="module")
def plan():
    return surefoot.plan(surefoot.load_recipe("gpt", ["layers=2", "width=64", "heads=2"]), on="h100-sxm")


def test_text_page_and_notebook_show_the_interval(plan):
    from surefoot.reports.plan import plan_text
    from surefoot.reports.plan_page import plan_report

    assert plan.time.interval.low_seconds < plan.time.interval.high_seconds
    assert "step    " in (short := as_text(plan_text(plan)))
    assert re.search(r"^step +[\d.]+ \wm?s \([\d.]+ to [\d.]+\): ", short, re.MULTILINE)
    told = as_text(plan_text(plan, tables=True))
    assert "(80%: " in told.split("a step takes about")[1].splitlines()[0]
    assert plan.time.interval.of in " ".join(told.split())
    assert "(80%: " in plan_report(plan).answer
    assert "80%" in plan_report(plan).sheets[0].facts["step"]
    assert "(80%: " in plan._repr_html_()


@pytest.mark.parametrize("name", [each for each in known_devices() if datasheet(each).dense_flops])
def test_every_device_with_a_time_has_an_interval(name, plan):
    from surefoot.costs.time_on_cluster import time_on

    sheet = datasheet(name)
    if sheet.memory_bandwidth:
        assert time_on(cluster(name), plan.steady, {"tp": 1}).interval is not None


def test_the_memory_of_a_compiled_step_has_an_interval_too(plan):
    recipe = surefoot.load_recipe("gpt", ["layers=2", "width=64", "heads=2", "compile=blocks"])
    compiled = surefoot.plan(recipe, on="h100-sxm")
    low, high = compiled.compiled_bytes
    spread = constants().spreads["compiled memory"]
    reserved = compiled.reserved_bytes["classic"]
    assert (low, high) == (round(spread.low * reserved), round(spread.high * reserved))
    assert any(line.startswith("compile=blocks:") and "in four of five cases" in line for line in compiled.choices)
    assert plan.compiled_bytes is None


def test_fitted_numbers_can_be_replaced(plan):
    from surefoot.costs.time_on_cluster import time_on

    slow = Constants({"9.0": 0.1}, 0.1, 0.1, 1.0, 1e-3, 0.1, 0.0)
    assert time_on(cluster("h100-sxm"), plan.steady, {"tp": 1}, fitted=slow).seconds > 5 * plan.time.seconds
