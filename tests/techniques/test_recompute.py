"""Recompute: the same gradients to the bit, less memory, more FLOPs; budgets are kept."""

import copy
import dataclasses
import gc
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import saved_tensors_hooks

import surefoot
from surefoot import Recipe
from surefoot.errors import RecipeError
from surefoot.meters import allocator
from surefoot.recipe.recipe import budget_of
from surefoot.step import Step
from surefoot.techniques.recompute import blocks_of
from surefoot.techniques.recompute_budget import Block, choose
from surefoot.world.world import World

WAYS = ["full", "selective", "budget=0.5"]


class Layer(nn.Module):
    """A block with attention, dropout and a batch norm: random numbers and running statistics."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.3), nn.Linear(2 * width, width))
        self.batch_norm = nn.BatchNorm1d(width)

    def forward(self, x, *, scale=1.0):
        normed = self.norm(x)
        x = x + scale * self.attention(normed, normed, normed, need_weights=False)[0]
        return self.batch_norm((x + self.mlp(x)).mT).mT


class Deep(nn.Module):
    def __init__(self, layers: int = 4, width: int = 16):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return self.head(x)


def deep(**changes) -> Recipe:
    rows = torch.randn(64, 12, 16, generator=torch.Generator().manual_seed(1))
    plain = Recipe(
        model=Deep,
        data=lambda: torch.utils.data.TensorDataset(rows),
        loss=lambda model, batch: (model(batch[0]).square().sum(), batch[0].shape[0]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=8,
        global_batch_tokens=16,
    )
    return dataclasses.replace(plain, **changes)


def trained(recipe: Recipe, steps: int = 2) -> dict[str, torch.Tensor]:
    """Parameters and buffers after some steps."""
    rows = recipe.data().tensors[0]
    with World() as world:
        step = Step(recipe, world)
        for _ in range(steps):
            step([(rows[:8],), (rows[8:16],)])
        return step.model.state_dict()


@pytest.mark.parametrize("way", WAYS)
def test_recomputing_changes_no_bit_of_weights_and_running_statistics(way: str):
    plain, again = trained(deep()), trained(deep(recompute=way))
    assert list(plain) == list(again)
    for name in plain:
        assert torch.equal(plain[name], again[name]), name


def test_without_the_random_state_dropout_would_differ():
    """That the test above can fail: the same blocks, recomputed with other random numbers."""
    from unittest import mock

    from surefoot.techniques import recompute

    careless = lambda call, *args, **options: torch.utils.checkpoint.checkpoint(  # noqa: E731
        call, *args, preserve_rng_state=False, **options
    )
    with mock.patch.object(recompute, "checkpoint", careless):
        again = trained(deep(recompute="full"))
    assert not all(torch.equal(tensor, again[name]) for name, tensor in trained(deep()).items())


def test_memory_falls_and_hardware_flops_rise_while_model_flops_stay(small_recipe):
    plans = {way: surefoot.plan(small_recipe("gpt", f"recompute={way}")) for way in ("none", "full", "selective")}
    activations = {way: plan.steady.tally.total("memory/activations") for way, plan in plans.items()}
    flops = {way: plan.steady.tally.total("flops") for way, plan in plans.items()}
    again = {way: plan.steady.tally.total("flops/recompute") for way, plan in plans.items()}
    assert activations["full"] < activations["selective"] < activations["none"]
    assert flops["full"] > flops["selective"] > flops["none"]
    assert again["none"] > 0  # the scores of attention, in its backward
    assert {flops[way] - again[way] for way in plans} == {flops["none"] - again["none"]}
    assert len({plan.flops_per_token["counted"] for plan in plans.values()}) == 1


@pytest.mark.parametrize(
    ("way", "precision"), [("full", "32-true"), ("selective", "bf16-mixed"), ("budget=0.5", "16-mixed")]
)
def test_plan_equals_profile(way: str, precision: str, small_recipe):
    recipe = small_recipe("gpt", f"recompute={way}", f"precision={precision}")
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.first == profile.first
    assert plan.steady == profile.steady
    if profile.allocated_peak_bytes is not None:
        assert plan.steady.peak.peak_bytes == pytest.approx(profile.allocated_peak_bytes, rel=1e-4, abs=64)


def saved_bytes(step: Step, batch) -> int:
    """What autograd keeps inside the blocks for one micro-batch, with their inputs and without parameters."""
    own = {each.untyped_storage().data_ptr() for each in step.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}
    inside = []

    def keep(tensor):
        if inside and tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    def begin(module, args, kwargs):
        inside.append(module)
        kept[args[0].untyped_storage().data_ptr()] = args[0].untyped_storage()

    blocks = [block.module for block in step.recomputation.blocks] or list(step.model.layers)
    hooks = [block.register_forward_pre_hook(begin, with_kwargs=True) for block in blocks]
    hooks += [block.register_forward_hook(lambda *_: inside.clear()) for block in blocks]
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss, _ = step._loss(batch)
    for hook in hooks:
        hook.remove()
    del loss
    return sum(storage.nbytes() for storage in kept.values())


@settings(max_examples=5, deadline=None)
@given(share=st.floats(0, 1), layers=st.integers(1, 4))
def test_a_share_is_kept_and_nothing_is_recomputed_without_need(share: float, layers: int):
    rows, share = torch.randn(8, 12, 16), round(share, 4)
    with World() as world:
        most, least, settled = (
            Step(deep(model=lambda: Deep(layers), recompute=way), world) for way in ("none", "full", f"budget={share}")
        )
        for step in (most, least, settled):
            step([(rows,)])
        most_bytes, least_bytes, kept = (saved_bytes(step, (rows,)) for step in (most, least, settled))
        assert kept <= least_bytes + share * (most_bytes - least_bytes)
        assert bool(settled.recomputation.recomputed()) == (share < 1)


@pytest.mark.skipif(not allocator.available(), reason="counting torch's allocator needs a C++ compiler")
@pytest.mark.parametrize("size", ["96 KiB", "0.15MB", "0.45MB"])
def test_bytes_are_kept_as_said(size: str):
    """By what lives after a forward, beside what lives with all recomputed; each block keeps a random state too."""

    def live_bytes(way: str) -> tuple[int, Step]:
        step, rows = Step(deep(recompute=way), world), torch.randn(8, 12, 16)
        step([(rows,)])
        gc.collect()
        before = allocator.live_bytes()
        loss, _ = step._loss((rows,))
        live = allocator.live_bytes() - before
        del loss
        return live, step

    allocator.install()
    try:
        with World() as world:
            least, _ = live_bytes("full")
            live, step = live_bytes(f"budget={size}")
    finally:
        allocator.uninstall()
    inputs = step.recomputation.settled.kept_bytes[0]
    kept = inputs + sum(block.offers[block.module.recomputed].bytes for block in step.recomputation.blocks)
    assert kept <= budget_of(f"budget={size}")
    assert inputs + live - least == pytest.approx(kept, abs=4 * 5500)
    assert f"{kept / 2**20:,.2f} MiB kept for backward, at most" in step.choices()[-1]


def test_a_budget_below_the_blocks_inputs_is_refused():
    with World() as world, pytest.raises(RecipeError, match=r"the inputs of the blocks alone take 0\.02 MiB"):
        Step(deep(recompute="budget=4KiB"), world)([(torch.randn(8, 12, 16),)])


amounts = st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))


@given(items=st.lists(amounts, min_size=1, max_size=5), inputs=st.integers(0, 500), share=st.floats(0, 1))
def test_choosing_stays_within_the_limit_in_the_fewest_seconds(items, inputs, share):
    blocks = [Block(str(n), nn.Identity(), *each) for n, each in enumerate(items)]
    most = inputs + sum(saved for saved, *_ in items)
    for budget in (share, round(inputs + share * (most - inputs))):
        settled = choose(blocks, inputs, budget)
        limit = budget if isinstance(budget, int) else inputs + share * (most - inputs)
        taken = [block.offers[block.module.recomputed] for block in blocks]
        assert inputs + sum(offer.bytes for offer in taken) <= limit
        assert inputs + sum(offer.bytes for offer in taken) in settled.kept_bytes
        others = itertools.product(*(block.offers.values() for block in blocks))
        fitting = [other for other in others if inputs + sum(offer.bytes for offer in other) <= limit]
        assert sum(offer.cost for offer in taken) == min(sum(offer.cost for offer in other) for other in fitting)


def test_costly_blocks_are_spared_first_and_of_equals_the_last():
    def chosen(*blocks: tuple[int, ...]) -> list[str]:
        made = [Block(str(n), nn.Identity(), *each) for n, each in enumerate(blocks)]
        choose(made, 0, 10)
        return [block.module.recomputed for block in made]

    cheap, costly = (5, 4, 1, 1), (5, 4, 9, 9)
    assert chosen(cheap, cheap, cheap, cheap) == ["full", "full", "none", "none"]
    assert chosen(costly, cheap, costly, cheap) == ["none", "full", "none", "full"]
    assert chosen((12, 11, 99, 99), cheap) == ["full", "none"]  # what does not fit does not stand in the way of others
    assert chosen((8, 2, 90, 30), (8, 2, 90, 30)) == ["selective", "none"]


def test_nothing_is_left_of_the_forward_that_settled_a_budget():
    gc.collect()
    before = {id(each) for each in gc.get_objects() if type(each) is FakeTensor}
    with World() as world:
        step = Step(deep(recompute="budget=0.5"), world)
        step([(torch.randn(8, 12, 16),)])
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is FakeTensor and id(each) not in before]


def test_blocks_are_the_outermost_repeated_modules():
    stage = lambda: nn.Sequential(Layer(8), Layer(8))  # noqa: E731
    assert [name for name, _ in blocks_of(Deep(3))] == ["layers.0", "layers.1", "layers.2"]
    assert [name for name, _ in blocks_of(nn.Sequential(stage(), stage()))] == ["0.0", "0.1", "1.0", "1.1"]
    pairs = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    assert [name for name, _ in blocks_of(pairs)] == ["0", "1", "2"]
    assert blocks_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))) == []
    assert blocks_of(nn.Sequential(Layer(8), nn.Linear(8, 1))) == []
    assert [name for name, _ in blocks_of(nn.ModuleDict({"0": Layer(8)}))] == ["0"]


@pytest.mark.parametrize("way", WAYS)
def test_a_model_without_blocks_is_refused(way: str, small_recipe):
    with pytest.raises(RecipeError, match="Sequential has none"):
        surefoot.plan(small_recipe("fashion", f"recompute={way}"))


@pytest.mark.parametrize("text", ["ful", "budget", "budget=", "budget=2", "budget=-1", "budget=2XB", "budget=1e3"])
def test_what_is_no_way_to_recompute_is_refused(text: str):
    with pytest.raises(RecipeError, match="is not one of none, full, selective"):
        deep(recompute=text)


def test_budgets_are_read():
    assert budget_of("budget=0.25") == 0.25
    assert budget_of("budget=1") == 1.0
    assert budget_of("budget=2GiB") == 2**31
    assert budget_of("budget=1.5 MB") == 1_500_000
    assert budget_of("full") is None


def test_a_plan_says_which_blocks_and_why(small_recipe):
    (said,) = surefoot.plan(small_recipe("gpt", "recompute=budget=0.5")).choices
    assert said.startswith("recompute=budget=0.5: 1 (blocks.0) of 2 blocks run again in backward; ")
    assert "kept for backward, at most" in said
    assert surefoot.plan(small_recipe("gpt")).choices == ()


def test_names_classes_and_copies_stay_usable():
    with World() as world:
        model = Step(deep(recompute="full"), world).model
    assert type(model.layers[0]).__name__ == "Layer"
    assert isinstance(model.layers[0], Layer)
    assert list(model.state_dict()) == list(Deep().state_dict())
    copy.deepcopy(model)(torch.randn(2, 12, 16))


def test_evaluation_recomputes_nothing_and_does_not_settle_a_budget():
    with World() as world:
        step = Step(deep(recompute="budget=0.5"), world)
        step.evaluate([(torch.randn(4, 12, 16),)])
        assert step.recomputation.settled is None
