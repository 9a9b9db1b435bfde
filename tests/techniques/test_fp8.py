"""FP8: which layers are converted, that plans count what a step takes, and what is refused."""

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot
from surefoot.data.batches import batches_of
from surefoot.errors import MissingPackage, RecipeError, WorldError
from surefoot.exports.as_model import with_program, with_weights
from surefoot.meters import allocator
from surefoot.recipe.load import make_recipe
from surefoot.step import Step
from surefoot.techniques.precision import autocast
from surefoot.world.world import RealWorld, TinyWorld
from tests.planned_ranks import recipe as llama
from tests.planned_ranks import taken_by

SMALL = {"layers": 2, "width": 32, "heads": 2, "context": 32, "micro_batch_size": 2, "global_batch_tokens": 512}
KINDS = ["fp8", "fp8-rowwise"]


@pytest.fixture(scope="module", autouse=True)
def torchao():
    pytest.importorskip("torchao")


def gpt(precision: str = "fp8", **knobs):
    return make_recipe("gpt", {**SMALL, "precision": precision, **knobs})


def stepped(recipe, steps: int = 1) -> tuple[Step, list[float]]:
    with RealWorld() as world:
        step, batches = Step(recipe, world), batches_of(recipe)
        losses = [step(world.take(batches) for _ in range(step.micro_batches)).loss.item() for _ in range(steps)]
        return step, losses


@pytest.mark.parametrize("precision", KINDS)
def test_a_step_multiplies_in_fp8_and_keeps_float32(precision):
    """Its loss is near that of bfloat16, and not the same: the products were rounded to 8 bits."""
    step, losses = stepped(gpt(precision), steps=3)
    _, coarse = stepped(gpt("bf16-mixed"), steps=3)
    assert losses == pytest.approx(coarse, rel=5e-3)
    assert losses != coarse
    assert {each.dtype for each in step.parameters} == {torch.float32}
    assert step.model.state_dict().keys() == gpt().model().state_dict().keys()
    layer = step.model.get_submodule(step.conversion.names[0])
    with autocast("bf16-mixed", torch.device("cpu")):
        assert layer(torch.randn(16, 32)).dtype is torch.bfloat16
    said = "\n".join(step.choices())
    assert f"precision={precision}: 8 of 9 linear layers multiply in FP8" in said
    assert "not in FP8: head: the last layer stays in bfloat16" in said
    assert "FP8 saves no activation memory" in said


def test_a_layer_that_gains_nothing_or_does_not_fit_is_not_converted():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(32, 32)
            self.tied = nn.Linear(32, 32, bias=False)
            self.tied.weight = self.words.weight
            self.odd, self.frozen, self.plain = nn.Linear(32, 24), nn.Linear(24, 32), nn.Linear(32, 32)
            self.attention = nn.MultiheadAttention(32, 2)
            self.out = nn.Linear(32, 32)

    recipe = dataclasses.replace(gpt(), model=Model, freeze="frozen.*")
    with RealWorld() as world:
        step = Step(recipe, world)
    assert step.conversion.names == ("plain",)
    assert {name: why.split(",")[0] for name, why in step.conversion.kept.items()} == {
        "tied": "another module shares its weight",
        "odd": "24 x 32 is not divisible by 16",
        "frozen": "its weight is frozen",
        "attention.out_proj": "NonDynamicallyQuantizableLinear has a forward of its own",
        "out": "the last layer stays in bfloat16",
    }


@pytest.mark.sweep
@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize("precision", KINDS)
def test_a_plan_counts_what_a_step_takes(precision):
    recipe = llama(precision=precision, micro_batch_size=16)
    plan = surefoot.plan(recipe, on="1xcpu")
    assert (plan.first.peak.peak_bytes, plan.steady.peak.peak_bytes) == taken_by(recipe)["peaks"]


def test_activations_take_what_they_take_in_bfloat16():
    eight, sixteen = (
        max(plan.steady.timeline.accounts["activations"])
        for plan in (
            surefoot.plan(llama(precision=each, dp_shard=2), on="2xh100-sxm") for each in ("fp8", "bf16-mixed")
        )
    )
    assert eight == pytest.approx(sixteen, rel=0.02)
    assert eight > 0


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"tp": 2}, "does not work with tp"),
        ({"width": 40}, r"converts no linear layer of GPT: blocks\.0.* is not divisible by 16"),
        ({"context": 30, "micro_batch_size": 1, "global_batch_tokens": 60}, r"a linear layer gets 30 "),
    ],
)
def test_what_is_refused(knobs, said):
    with pytest.raises(RecipeError, match=said):
        stepped(gpt(**knobs))


@pytest.mark.parametrize("card", ["a100", "rtx-3090", "t4"])
def test_a_card_without_fp8_units_is_refused(card):
    with pytest.raises(WorldError, match=r"has no FP8 units; .* use precision=bf16-mixed"):
        surefoot.plan(gpt(), on=card)


@pytest.mark.parametrize("card", ["rtx-4090", "h200", "b200", "mi300x"])
def test_a_card_with_fp8_units_is_planned(card):
    plan = surefoot.plan(gpt(), on=card)
    assert plan.fit.fits
    assert any("runs that do not multiply in FP8" in said for said in plan.time.assumptions)


def test_layers_in_four_bits_are_refused():
    class Half(nn.Linear):
        whole_numel = 64

    model = lambda: nn.Sequential(Half(32, 32), nn.Linear(32, 32), nn.Linear(32, 32))  # noqa: E731
    with pytest.raises(RecipeError, match="does not work with 4-bit layers"):
        stepped(dataclasses.replace(gpt(), model=model))


def test_a_missing_torchao_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.float8", None)
    with pytest.raises(MissingPackage, match=r"precision=fp8 needs torchao: pip install"):
        stepped(gpt())
    monkeypatch.undo()
    importlib.import_module("torchao.float8")


def test_a_check_computes_in_bfloat16():
    """With one scale for a tensor, later tokens change the rounding of earlier ones: the checks of leaks would fire."""
    assert TinyWorld().fit(gpt()).precision == "bf16-mixed"
    assert surefoot.check(gpt()).findings == ()


def test_weights_are_scored_in_fp8_and_a_program_in_bfloat16(tmp_path):
    recipe = dataclasses.replace(gpt(max_steps=2), evaluation=lambda: gpt().data(), evaluation_batches=2)
    file = Path(surefoot.train(recipe, path=str(tmp_path / "run")).weights)
    with RealWorld() as world:
        assert Step(with_weights(recipe, file), world).conversion is not None
        assert Step(with_program(recipe, lambda args, kwargs: args), world).conversion is None
