"""Groups: which parameters decay, and that every way takes them."""

import dataclasses
import re

import pytest
import torch
from torch import nn

import surefoot
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError
from surefoot.step import Step
from surefoot.techniques.groups import SHARE, explain, optimizer_groups
from surefoot.world.world import World


class Odd(nn.Module):
    """A norm and a bias of two dimensions, an embedding, a scalar, a frozen layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(10, 4), nn.Linear(4, 10)
        self.out.weight = self.embed.weight
        self.norm, self.scale = nn.LayerNorm((3, 4)), nn.Parameter(torch.ones(()))
        self.position_bias = nn.Parameter(torch.zeros(3, 4))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)


def names(model: nn.Module, group) -> set[str]:
    known = {parameter: name for name, parameter in model.named_parameters()}
    return {known[parameter] for parameter in group["params"]}


def made(**settings) -> surefoot.Recipe:
    """A recipe of which only these settings are looked at."""
    return surefoot.Recipe(
        model=Odd, data=list, loss=lambda model, batch: model, optimizer=torch.optim.SGD, max_steps=1, **settings
    )


def test_matrices_decay_and_norms_biases_and_vectors_do_not():
    model = Odd()
    matrices, others = optimizer_groups(model, made(decay="matrices"))
    assert names(model, matrices) == {"embed.weight"}
    assert names(model, others) == {"out.bias", "norm.weight", "norm.bias", "scale", "position_bias"}
    assert "weight_decay" not in matrices
    assert others["weight_decay"] == 0


def test_all_is_a_plain_list_of_what_is_trained():
    model = Odd()
    assert optimizer_groups(model, made()) == [each for each in model.parameters() if each.requires_grad]


def test_shares_of_the_rate_split_groups_and_the_first_pattern_counts():
    model = Odd()
    recipe = made(decay="matrices", rates=("norm.bias=0", "norm.*=10"), schedule=None)
    groups = optimizer_groups(model, recipe)
    found = {frozenset(names(model, group)): (group[SHARE], group.get("weight_decay")) for group in groups}
    assert found == {
        frozenset({"embed.weight"}): (1.0, None),
        frozenset({"out.bias", "scale", "position_bias"}): (1.0, 0.0),
        frozenset({"norm.weight"}): (10.0, 0.0),
        frozenset({"norm.bias"}): (0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("head.*=10", "rates=head.*=10 matches no trained parameter of recipe; they are scale, "),
        ("norm.*", "rates='norm.*' must be a pattern and a share of the learning rate"),
        ("norm.*=-1", "must be a pattern and a share"),
        ("norm.*=nan", "must be a pattern and a share"),
    ],
)
def test_shares_of_nothing_are_refused(given, said):
    with pytest.raises(RecipeError, match=re.escape(said)):
        optimizer_groups(Odd(), made(rates=given))


def test_a_share_of_the_rate_scales_every_step_of_the_schedule(small_recipe):
    recipe = dataclasses.replace(
        small_recipe("gpt", "rates=position.*=0.5"), schedule=lambda step, steps: (step + 1) / steps
    )
    with World() as world:
        step, batches = Step(recipe, world), batches_of(recipe)
        for number in range(2):
            first, slow = (group["lr"] for group in step.optimizer.param_groups)
            assert slow == pytest.approx(0.5 * first)
            step(world.take(batches) for _ in range(step.micro_batches))
            assert number == 0 or first > 0
    assert "0.5 times the learning rate, weight_decay=" in surefoot.plan(recipe).choices[-1]


def test_decay_moves_matrices_only(small_recipe):
    """Without gradients to speak of, only decay moves a parameter."""
    recipe = dataclasses.replace(
        small_recipe("gpt"),
        decay="matrices",
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, weight_decay=0.5),
        loss=lambda model, batch: (0 * model(batch[0]).sum(), 1),
        schedule=None,
    )
    with World() as world:
        step = Step(recipe, world)
        before = {name: each.detach().clone() for name, each in step.model.named_parameters()}
        step([(torch.zeros(2, 8, dtype=torch.int64),)])
        for name, now in step.model.named_parameters():
            assert torch.allclose(now, before[name] * (1 if "norm" in name else 0.95), rtol=1e-6), name


def test_the_rule_is_printed(small_recipe):
    plan = surefoot.plan(small_recipe("gpt", "decay=matrices"))
    matrices, others = plan.choices
    assert matrices.startswith("weight_decay=0.1 on ")
    assert "token.weight, position.weight, blocks.*.attention.qkv.weight" in matrices
    assert others == (
        "weight_decay=0 on 320 parameters in 10 tensors: blocks.*.attention_norm.weight, "
        "blocks.*.attention_norm.bias, blocks.*.mlp_norm.weight, blocks.*.mlp_norm.bias, norm.weight, norm.bias"
    )


def test_one_group_needs_no_words():
    model = nn.Linear(2, 2)
    assert explain(torch.optim.SGD(model.parameters(), lr=0.1), model) == []


def test_an_unknown_rule_is_refused(small_recipe):
    with pytest.raises(RecipeError, match="decay='most' is not one of all, matrices"):
        small_recipe("gpt", "decay=most")


def test_groups_and_a_fused_optimizer_go_all_five_ways(small_recipe, tmp_path):
    fused = lambda groups: torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.1, fused=True)  # noqa: E731
    recipe = dataclasses.replace(small_recipe("gpt", "max_steps=2", "decay=matrices"), optimizer=fused)
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.first == profile.first
    assert plan.steady == profile.steady
    assert surefoot.check(recipe).findings == ()
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert surefoot.export(run.path).weights_difference == 0
