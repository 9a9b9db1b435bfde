"""MFU: model FLOPs over a peak that is known, or no MFU at all."""

import dataclasses
from io import StringIO

import pytest
import torch
from rich.console import Console

import surefoot
from surefoot.hardware.datasheet import datasheet, datasheet_of
from surefoot.hardware.names import DRIVER_NAMES
from surefoot.planning import mfu as utilisation
from surefoot.reports.live import LiveView
from surefoot.world.this_machine import present


def test_a_device_without_a_datasheet_has_no_peak():
    assert utilisation.peak_flops(torch.device("cpu"), "32-true") is None
    assert datasheet_of("NVIDIA H100 80GB HBM3").name == "h100-sxm"
    assert datasheet_of("Imagined 9000") is None


@pytest.mark.parametrize(
    ("precision", "kind"), [("bf16-mixed", "bf16"), ("16-mixed", "fp16"), ("bf16-true", "bf16"), ("32-true", "fp32")]
)
def test_the_peak_is_that_of_the_format_and_dense(precision: str, kind: str, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    peak = utilisation.peak_flops(torch.device("cuda"), precision)
    assert peak == datasheet("h100-sxm").dense_flops.get(kind)
    if kind == "bf16":
        assert peak == 989e12 or peak == 989.4e12  # dense; 1,979 is with sparsity


def test_a_run_is_planned_for_the_devices_that_are_here(monkeypatch):
    assert (present(1), present(2)) == (None, "2xcpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    assert (present(1), present(8)) == ("1xh100-sxm", "8xh100-sxm")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Imagined 9000")
    assert (present(1), present(2)) == (None, "2xcpu")


def test_the_flops_are_those_of_the_plan_and_do_not_count_recomputation(small_recipe):
    recipe = small_recipe("gpt")
    plan = surefoot.plan(recipe)
    assert utilisation.step_flops(recipe) == plan.flops_per_token["counted"] * recipe.tokens_per_step
    assert utilisation.step_flops(dataclasses.replace(recipe, recompute="full")) == utilisation.step_flops(recipe)


def test_a_run_shows_mfu_with_its_peak_where_the_device_is_known(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot.training.opening.peak_flops", lambda device, precision: 1e12)
    out, recipe = StringIO(), small_recipe("gpt", "max_steps=2")
    with LiveView(2, console=Console(file=out, width=200)) as view:
        run = surefoot.train(recipe, path=str(tmp_path / "run"), tell=view)
    row = run.rows()[-1]
    assert f"MFU {run.step_flops / row.seconds / 1e12:.1%}" in out.getvalue()
    assert "MFU = model FLOPs / seconds / 1 TFLOP/s dense" in out.getvalue()


def test_driver_names_are_spelt_once():
    assert len(set(DRIVER_NAMES.values())) == len(DRIVER_NAMES)
