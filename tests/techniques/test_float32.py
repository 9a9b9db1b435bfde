"""float32: named modules of a mixed precision compute in float32, in training and in plans."""

import dataclasses

import pytest
import torch
from torch import nn

import surefoot
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError
from surefoot.recipe.load import make_recipe
from surefoot.step import Step
from surefoot.world.world import FakeWorld, RealWorld

SMALL = {"layers": 4, "width": 32, "heads": 2, "context": 16, "micro_batch_size": 2, "global_batch_tokens": 64}


def gpt(**settings):
    return make_recipe("gpt", {**SMALL, "precision": "bf16-mixed", **settings})


def losses(recipe, seen: dict | None = None) -> list[float]:
    with RealWorld() as world:
        step = Step(recipe, world)
        for name, module in step.model.named_modules() if seen is not None else ():
            module.register_forward_hook(lambda *call, name=name: seen.update({name: call[-1]}))
        batches = batches_of(recipe)
        return [step(world.take(batches) for _ in range(step.micro_batches)).loss.item() for _ in range(3)]


def test_named_modules_compute_in_float32_and_no_others():
    seen: dict[str, torch.Tensor] = {}
    recipe = gpt(float32="blocks.1.*,head")
    losses(recipe, seen)
    linear = {
        name: seen[name].dtype for name, module in recipe.model().named_modules() if isinstance(module, nn.Linear)
    }
    assert linear == {
        name: torch.float32 if name.startswith("blocks.1.") or name == "head" else torch.bfloat16 for name in linear
    }
    assert {*linear.values()} == {torch.float32, torch.bfloat16}


class ByHand(nn.Module):
    """A model whose author turned autocast off for its last layer."""

    def __init__(self, *, by_hand: bool) -> None:
        super().__init__()
        self.body, self.last, self.by_hand = nn.Linear(4, 8), nn.Linear(8, 1), by_hand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x).relu()
        with torch.autocast("cpu", enabled=not self.by_hand and torch.is_autocast_enabled("cpu")):
            return self.last(x.float() if self.by_hand else x)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_it_is_what_an_author_writes_by_hand(precision):
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    recipe = surefoot.Recipe(
        model=lambda: ByHand(by_hand=False),
        data=lambda: data,
        loss=lambda model, batch: (model(batch[0]).float() - batch[1]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        precision=precision,
        micro_batch_size=8,
        max_steps=3,
    )
    kept = dataclasses.replace(recipe, float32="last")
    by_hand = dataclasses.replace(recipe, model=lambda: ByHand(by_hand=True))
    assert losses(kept) == losses(by_hand) != losses(recipe)


@pytest.mark.parametrize(
    "settings", [{"float32": "head"}, {"float32": "*norm"}, {"float32": "blocks.*", "recompute": "full"}], ids=str
)
def test_plans_are_those_of_the_step(settings):
    recipe = gpt(**settings)
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert (plan.first, plan.steady) == (profile.first, profile.steady)
    said = [each for each in plan.choices if each.startswith("float32=")]
    assert [each.endswith("modules compute in float32") for each in said] == [True]


def test_a_plan_from_a_few_blocks_is_that_of_all():
    recipe = gpt(layers=12, float32="blocks.*.attention")
    assert surefoot.plan(recipe).steady == surefoot.plan(recipe, reuse=False).steady


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"float32": "haed"}, r"float32='haed' matches no module of gpt; its modules are .*head"),
        ({"float32": "head", "precision": "32-true"}, "needs precision='bf16-mixed' or '16-mixed'"),
        ({"float32": "head", "precision": "bf16-true"}, "needs precision='bf16-mixed' or '16-mixed'"),
    ],
)
def test_what_has_no_meaning_is_refused(settings, said):
    with pytest.raises(RecipeError, match=said):
        surefoot.plan(gpt(**settings))


def test_ranks_that_split_the_model_are_refused():
    with FakeWorld(ranks=2) as world, pytest.raises(RecipeError, match="use ddp, or one rank"):
        Step(gpt(float32="head"), world)
