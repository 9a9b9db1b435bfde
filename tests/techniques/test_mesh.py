"""The layout of ranks: its sizes multiply to their number, and every share of the data is seen once."""

import math
import re
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import load_recipe
from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.step import Step
from surefoot.techniques.mesh import DIMENSIONS, Layout, layout_of, with_global_batch
from surefoot.training.resume import changes_since, new_run
from surefoot.world.world import FakeWorld

SIZES = st.integers(1, 6)


def gpt(*words):
    return load_recipe("gpt", ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", *words])


def test_a_dimension_is_named_like_the_fields_that_hold_its_size():
    assert tuple(each.name for each in fields(Layout)) == (*DIMENSIONS, "rank")
    assert set(DIMENSIONS) <= {each.name for each in fields(Recipe)}
    assert Layout(2, 3, 4, 5).sizes == {"dp_replicate": 2, "dp_shard": 3, "cp": 4, "tp": 5}


@given(dp_replicate=SIZES, dp_shard=SIZES, cp=SIZES, tp=SIZES, said=st.booleans())
def test_ranks_share_the_data_among_them(dp_replicate, dp_shard, cp, tp, said):
    recipe = replace(gpt(), dp_replicate=dp_replicate, dp_shard=dp_shard if said else -1, cp=cp, tp=tp)
    ranks = dp_replicate * dp_shard * cp * tp
    layouts = [layout_of(recipe, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert {each.dp_shard for each in layouts} == {dp_shard}
    assert [each.data_rank for each in layouts if each.leads] == list(range(dp_replicate * dp_shard))
    shares = [(each.data_rank, each.context_rank) for each in layouts if each.speaks]
    assert shares == [(rank, part) for rank in range(dp_replicate * dp_shard) for part in range(cp)]
    assert all(layouts[rank].data_rank == layouts[rank // (cp * tp) * cp * tp].data_rank for rank in range(ranks))
    assert {each.ranks for each in layouts} == {ranks}
    assert all(each.shards != each.replicates for each in layouts) == (ranks > 1)


@pytest.mark.parametrize(
    ("words", "ranks", "said"),
    [
        (
            ["dp_replicate=3"],
            4,
            "dp_replicate=3 x dp_shard=-1 x tp=1 does not make 4 rank(s): 4 is not a multiple of 3",
        ),
        (["dp_shard=3"], 8, "dp_replicate=2 x dp_shard=3 x tp=1 does not make 8 rank(s): it takes 6"),
        (["tp=2"], 1, "dp_replicate=1 x dp_shard=-1 x tp=2 does not make 1 rank(s): 1 is not a multiple of 2"),
        (["cp=2"], 3, "dp_replicate=1 x dp_shard=-1 x cp=2 x tp=1 does not make 3 rank(s): 3 is not a multiple of 2"),
    ],
)
def test_what_does_not_multiply_is_refused(words, ranks, said):
    with pytest.raises(RecipeError, match=re.escape(said)):
        layout_of(gpt(*words), ranks=ranks)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dp_shard": 0}, "dp_shard=0 must be at least 1, or -1"),
        ({"dp_replicate": 0}, "dp_replicate=0 must be at least 1"),
        ({"tp": 2, "tensor_plan": None}, "tp=2 needs a tensor_plan"),
        ({"tp": 2, "precision": "16-mixed"}, "does not work with tp"),
    ],
)
def test_a_recipe_refuses_what_cannot_be(settings, said):
    with pytest.raises(RecipeError, match=re.escape(said)):
        replace(gpt(), **settings)


def test_a_global_batch_that_is_not_said_grows_with_the_ranks():
    recipe = replace(gpt(), global_batch_tokens=None)
    assert with_global_batch(recipe, layout_of(recipe)) is recipe
    grown = with_global_batch(recipe, layout_of(recipe, ranks=4))
    assert (grown.tokens_per_step, grown.micro_batches(4)) == (4 * 2 * 32, 1)


def test_another_layout_is_no_change_of_the_recipe(tmp_path):
    run = new_run(gpt("dp_replicate=2"), tmp_path)
    assert list(changes_since(run, gpt("dp_shard=4", "tp=2", "reshard_after_forward=false"))) == []
    assert list(changes_since(run, gpt("lr=0.5"))) == ["lr was not given and is 0.5"]


def built(recipe, ranks):
    with FakeWorld(ranks=ranks) as world:
        return Step(recipe, world)


def test_a_recipe_can_name_the_blocks():
    named = replace(gpt(), shard_blocks=lambda model: [model.blocks[1]], global_batch_tokens=512)
    assert built(named, 2).sharding.names == ("blocks.1",)
    assert (
        "(blocks.1) one by one, the rest as one; the recipe's shard_blocks names them" in built(named, 2).choices()[0]
    )
    from torch import nn

    with pytest.raises(RecipeError, match="returned a Linear that is not part of the model"):
        built(replace(named, shard_blocks=lambda model: [nn.Linear(1, 1)]), 2)


def test_a_model_without_repeated_modules_is_gathered_as_one():
    step = built(load_recipe("regression", ["samples=64", "micro_batch_size=8", "global_batch_tokens=16"]), 2)
    assert step.sharding.names == ()
    assert "gathers it as one, since Linear has no repeated modules" in step.choices()[0]


def test_a_budget_for_recomputing_a_model_cut_in_tensors_is_refused():
    with pytest.raises(RecipeError, match="does not work with tp=2"):
        built(gpt("recompute=budget=0.5", "tp=2"), 2)


def test_a_key_of_a_tensor_plan_names_whole_paths_of_modules():
    """torch 2.8 takes `blocks.0` for `blocks.*.mlp.0`."""
    split = built(gpt("tp=2"), 2).cutting.names
    block = [f"blocks.1.{layer}.weight" for layer in ("attention.qkv", "attention.out", "mlp.0", "mlp.2")]
    assert sorted(name for name in split if name.startswith("blocks.1.")) == sorted(block)


def test_a_key_of_a_tensor_plan_that_names_no_module_is_refused():
    from torch.distributed.tensor.parallel import ColwiseParallel

    named = replace(gpt("tp=2"), tensor_plan=lambda model: {"blocks.*.mlp.up": ColwiseParallel()})
    with pytest.raises(RecipeError, match=r"tensor_plan splits 'blocks\.\*\.mlp\.up', and the model has no module"):
        built(named, 2)


def test_every_rank_holds_its_part():
    step = built(gpt("global_batch_tokens=1024"), 8)
    held = sum(math.prod(each.to_local().shape) for each in step.parameters)
    assert step.parameter_count / 8 <= held < step.parameter_count / 8 + 500
