"""Plans of one of many ranks: to the byte as real ranks have it, and with a few blocks as with all."""

import dataclasses

import pytest
import torch
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

import surefoot
from surefoot.meters import allocator
from surefoot.planning import recipe_plan as way
from surefoot.recipes.llama import Llama
from tests.planned_ranks import LAYOUTS, SEEN, SMALL, recipe
from tests.ranks import Case, on_ranks

pytestmark = pytest.mark.sweep


@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
def test_memory_and_traffic_are_those_of_real_ranks(tmp_path):
    cases = [Case("tests.planned_ranks", "taken", 2, (name,)) for name in LAYOUTS]
    for name, (real, other) in zip(LAYOUTS, on_ranks(cases, tmp_path), strict=True):
        plan = surefoot.plan(recipe(**LAYOUTS[name]), on="2xcpu")
        assert (plan.first.peak.peak_bytes, plan.steady.peak.peak_bytes) == real["peaks"], name
        if "cp" in LAYOUTS[name]:
            assert other == real, name
        booked = {each.name: each.amount for each in plan.steady.tally.accounts if each.name.startswith(SEEN)}
        assert booked == real["booked"], name
        assert booked


def test_traffic_by_hand():
    """FSDP gathers every block twice and the rest once, and scatters all gradients; replicas sum the shards."""
    with torch.device("meta"):
        model = Llama(SMALL)
    whole = 4 * sum(each.numel() for each in model.parameters())
    blocks = 4 * sum(each.numel() for each in model.blocks.parameters())
    hybrid = surefoot.plan(recipe(dp_shard=2), on="8xcpu").steady.tally
    assert hybrid.total("traffic/all-gather/dp_shard") == whole + blocks
    assert hybrid.total("traffic/reduce-scatter/dp_shard") == whole
    assert hybrid.total("traffic/all-reduce/dp_replicate") == whole / 2
    assert hybrid.total("collectives/all-gather/dp_shard") == (1 + SMALL.layers) + SMALL.layers
    assert hybrid.total("overlap/reduce-scatter/dp_shard") > 0
    never = surefoot.plan(recipe(dp_shard=4, reshard_after_forward=False), on="4xcpu").steady.tally
    assert never.total("traffic/all-gather/dp_shard") == whole
    last = surefoot.plan(recipe(dp_shard=4, reshard_after_forward="but-last"), on="4xcpu").steady.tally
    assert last.total("traffic/all-gather/dp_shard") == whole + blocks * (SMALL.layers - 1) / SMALL.layers


def test_tensor_parallel_gathers_and_scatters_what_it_cuts():
    """In forward each of two halves of a block gathers its input and scatters its result; the ends do one each."""
    tally = surefoot.plan(recipe(tp=2), on="2xcpu").steady.tally
    assert tally.total("collectives/all-gather/tp/forward") == 2 * SMALL.layers + 2
    assert tally.total("collectives/reduce-scatter/tp/forward") == 2 * SMALL.layers + 1
    sequence = 4 * 2 * SMALL.context * SMALL.width
    assert tally.total("traffic/reduce-scatter/tp/forward") == (2 * SMALL.layers + 1) * sequence


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("on", "settings"),
    [
        ("4xcpu", {"dp_shard": 4, "reshard_after_forward": "but-last"}),
        ("4xcpu", {"cp": 2}),
        ("8xh100-sxm", {"dp_shard": 2, "tp": 2, "recompute": "full"}),
    ],
)
def test_a_few_blocks_stand_for_all_byte_for_byte(on: str, settings, monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 6)
    many = recipe(layers=7, **settings)
    few, full = surefoot.plan(many, on=on), surefoot.plan(many, on=on, reuse=False)
    assert few.blocks == "7 blocks of blocks from runs with 3, 4 and 5"
    assert dataclasses.replace(few, blocks="") == full


def cut(blocks):
    """A tensor plan for the feed-forward layers of the first blocks."""
    styles = {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    return {f"blocks.{n}.mlp.{layer}": style for n in range(len(blocks)) for layer, style in styles.items()}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "settings",
    [
        {"dp_shard": 2, "shard_blocks": lambda model: model.blocks[:6]},
        {"tp": 2, "tensor_plan": lambda model: cut(model.blocks[:6])},
    ],
)
def test_a_block_that_ranks_share_otherwise_is_seen(settings, monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 6)
    plan = surefoot.plan(recipe(layers=7, **settings), on="2xcpu")
    assert plan.blocks.startswith("7 blocks of blocks all run: the treatment of a part differs")


def test_buckets_of_replicas_are_not_unrolled(monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 6)
    plan = surefoot.plan(recipe(layers=6, dp_shard=1), on="2xcpu")
    assert plan.blocks == "6 blocks of blocks all run: the buckets of ddp hold gradients of several blocks"


def test_of_many_ranks_each_plan_is_of_one():
    plans = {ranks: surefoot.plan(recipe(), on=f"{ranks}xcpu") for ranks in (1, 2)}
    assert plans[1].parameters == plans[2].parameters
    assert 2 * plans[2].steady.tally.total("memory/parameters") == plans[1].steady.tally.total("memory/parameters")
    assert plans[2].tokens_per_step == 2 * plans[1].tokens_per_step
    assert plans[2].flops_per_token["counted"] == plans[1].flops_per_token["counted"]
    assert plans[2].layout == "dp_shard=2"
