"""One recipe, five ways: they agree on parameters, tokens, FLOPs and memory."""

import math

import pytest
import torch

import surefoot
from tests.conftest import SMALL


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMALL)
def test_five_ways_agree(name: str, small_recipe, tmp_path):
    recipe = small_recipe(name, "max_steps=3")
    plan = surefoot.plan(recipe)
    profile = surefoot.profile(recipe, timed_steps=2)
    findings = surefoot.check(recipe)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    exported = surefoot.export(run.path)

    assert {finding.severity for finding in findings.findings} <= {"info"}
    if profile.allocated_peak_bytes is not None:
        assert plan.steady.peak.peak_bytes == pytest.approx(profile.allocated_peak_bytes, rel=0.01, abs=64)
    assert plan.parameters == profile.parameters == run.parameters == _parameters(recipe)
    counted = f"{recipe.unit}s"
    assert plan.steady.tally.total(counted) == profile.tally.total(counted) == recipe.tokens_per_step
    assert run.tokens == 3 * recipe.tokens_per_step
    assert run.steps == 3
    assert math.isfinite(run.last_loss)
    assert exported.weights_difference == 0
    assert exported.program_difference <= exported.tolerance

    for predicted, measured in ((plan.first, profile.first), (plan.steady, profile.steady)):
        assert _under(predicted, "flops") == _under(measured, "flops")
        assert _under(predicted, "memory") == _under(measured, "memory")
        assert predicted.peak == measured.peak
        assert predicted.phase_peaks == measured.phase_peaks
        assert predicted.tally.total("memory") == predicted.peak.peak_bytes


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_plan_equals_profile_in_every_precision(precision: str, small_recipe):
    recipe = small_recipe("gpt", f"precision={precision}")
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.first == profile.first
    assert plan.steady == profile.steady


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}], ids=str)
def test_plan_equals_profile_for_every_kind_of_optimizer(options, small_recipe):
    import dataclasses

    recipe = dataclasses.replace(
        small_recipe("gpt"), optimizer=lambda parameters: torch.optim.AdamW(parameters, **options)
    )
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.first == profile.first
    assert plan.steady == profile.steady
    assert plan.steady.tally.total("memory/optimizer") > 2 * 4 * plan.parameters  # two moments and the counters


def test_regression_flops_by_hand(small_recipe):
    recipe = small_recipe("regression")
    tally = surefoot.plan(recipe).steady.tally
    batch = recipe.micro_batch_size
    assert tally.total("flops/forward") == 2 * batch * 1 * 1
    assert tally.total("flops/backward") == 2 * batch * 1 * 1  # the weight's gradient; inputs need none


def test_cruncher_flops_by_hand(small_recipe):
    recipe = small_recipe("cruncher")
    tally = surefoot.plan(recipe).steady.tally
    batch, width, layers = recipe.micro_batch_size, 16, 3
    layer, head = 2 * batch * width * width, 2 * batch * width * 1
    assert tally.total("flops/forward") == layers * layer + head
    weight_gradients = layers * layer + head
    input_gradients = (layers - 1) * layer + head  # the first layer's input needs no gradient
    assert tally.total("flops/backward") == weight_gradients + input_gradients


def test_cruncher_memory_by_hand(small_recipe):
    plan = surefoot.plan(small_recipe("cruncher"))
    parameters = 3 * (16 * 16 + 16) + 16 + 1
    assert plan.parameters == parameters
    assert plan.steady.tally.total("memory/parameters") == 4 * parameters
    counters = 4 * 2 * 4  # AdamW keeps a float32 step counter for each of the 8 tensors
    assert plan.steady.tally.total("memory/optimizer") == 8 * parameters + counters


def _parameters(recipe: surefoot.Recipe) -> int:
    return sum(parameter.numel() for parameter in recipe.model().parameters())


def _under(usage, name: str):
    return [account for account in usage.tally.accounts if account.name.startswith(name + "/")]
