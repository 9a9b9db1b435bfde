"""The GPU that a plan is for: by its datasheet's name; so many of them."""

import pytest

import surefoot
from surefoot.errors import UnknownDevice, WorldError
from surefoot.hardware import datasheet, known_devices
from surefoot.records.plan import Fit
from surefoot.reports.plan_sure import sure_of
from surefoot.world.gpu.target import CONTEXT_BYTES, gpu, targets

GIB = 2**30


@pytest.mark.parametrize(
    "name", [name for name in known_devices() if datasheet(name).vendor == "NVIDIA" or datasheet(name).architecture]
)
def test_every_device_can_be_a_target(name: str):
    found = gpu(name)
    assert found.memory_bytes == (datasheet(name).usable_bytes or datasheet(name).memory_bytes)
    assert found.capability >= (7, 0)


def test_a_count_stands_before_a_name():
    assert targets("16384xh100-sxm") == (16384, gpu("h100-sxm"))
    assert targets("h100-sxm") == (1, gpu("h100-sxm"))
    assert targets("4xcpu") == (4, None)
    for wrong in ("h100x", "0xh100-sxm", "x8", "8x8xh100-sxm"):
        with pytest.raises(UnknownDevice, match="no datasheet for"):
            targets(wrong)


def test_every_policy_is_listed_with_the_plan(small_recipe):
    plan = surefoot.plan(small_recipe("gpt"), on="a100-sxm-40gb")
    assert plan.assumptions[: len(gpu("a100-sxm-40gb").policies)] == gpu("a100-sxm-40gb").policies
    assert any("8.125 MiB" in note for note in plan.assumptions)


def test_a_plan_for_the_cpu_is_as_it_was(small_recipe):
    recipe = small_recipe("gpt", "precision=bf16-mixed")
    before = surefoot.plan(recipe)
    surefoot.plan(recipe, on="h100-sxm")
    after = surefoot.plan(recipe)
    assert after == before
    assert after.fit is None


def test_the_fit_is_that_of_the_first_allocator_that_fits():
    reserved = {"classic": 70 * GIB, "expandable": 60 * GIB}
    device = {"context_bytes": GIB, "reserved_bytes": reserved}
    roomy, tight, small = (Fit.of("gpu", memory_bytes=size * GIB, **device) for size in (71, 61, 60))
    assert (roomy.fits, roomy.allocator, roomy.total_bytes) == (True, "classic", 71 * GIB)
    assert (tight.fits, tight.allocator, tight.total_bytes) == (True, "expandable", 61 * GIB)
    assert (small.fits, small.allocator, small.total_bytes) == (False, "classic", 71 * GIB)


def test_the_fit_counts_the_context(small_recipe):
    plan = surefoot.plan(small_recipe("gpt"), on="h100-sxm")
    assert plan.fit.total_bytes == plan.reserved_bytes["classic"] + CONTEXT_BYTES
    assert plan.fit.fits


@pytest.mark.parametrize(
    ("name", "capability", "mebibytes"), [("mi300x", (9, 4), 128), ("mi325x", (9, 4), 128), ("mi355x", (9, 5), 128)]
)
def test_an_amd_gpu_is_planned_like_cuda_with_its_differences_stated(small_recipe, name, capability, mebibytes):
    """The workspace of hipBLAS: ATen/cuda/CublasHandlePool.cpp takes 128 MiB on gfx94 and gfx95."""
    assert gpu(name).capability == capability
    assert gpu(name).blas_workspace_bytes == mebibytes * 2**20
    plan = surefoot.plan(small_recipe("gpt"), on=name)
    assert plan.steady.tally.total("memory/workspace") == 2 * mebibytes * 2**20
    assert "no run on one was compared" in plan.assumptions[0]
    assert sure_of(plan).startswith("memory: modelled as on CUDA; no run on an AMD GPU was compared")


@pytest.mark.parametrize(
    ("name", "why"),
    [("tpu-v5e", "XLA compiles whole steps"), ("apple-m4-max", "on MPS"), ("mi250x", "two devices of 64")],
)
def test_a_device_that_cannot_be_planned_says_why(name, why):
    with pytest.raises(WorldError, match=f"plan knows GPUs of NVIDIA and AMD; .*{why}"):
        gpu(name)


@pytest.mark.parametrize(("compiled", "share"), [("blocks", 1.001), ("whole", 1.134)])
def test_a_compiled_step_fits_only_if_the_upper_end_of_its_interval_does(small_recipe, compiled, share):
    words = ["recompute=full", "precision=bf16-mixed"]
    written = surefoot.plan(small_recipe("gpt", *words), on="h100-sxm")
    plan = surefoot.plan(small_recipe("gpt", *words, f"compile={compiled}"), on="h100-sxm")
    reserved = plan.reserved_bytes["classic"]
    assert reserved == written.reserved_bytes["classic"]
    assert plan.fit.total_bytes - CONTEXT_BYTES == pytest.approx(share * reserved, rel=1e-3)
    tight = Fit.of("gpu", memory_bytes=reserved, context_bytes=0, reserved_bytes=plan.needed_bytes)
    assert not tight.fits
