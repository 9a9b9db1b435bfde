"""What fits: the largest that is named really fits, and the next one does not; both were planned."""

import dataclasses
import gc
import importlib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from surefoot.data.batches import batches_of
from surefoot.errors import BudgetError, RecipeError
from surefoot.hardware import counted
from surefoot.meters import allocator
from surefoot.planning.fit.search import Searching, what_fits
from surefoot.planning.fit.trials import Trials, turned
from surefoot.recipe.recipe import Recipe
from surefoot.records.search import Budget, Limit, Search, Trial
from surefoot.step import Step
from surefoot.world.world import World

pytestmark = pytest.mark.sweep

BENCH = Path(__file__).parents[2] / "bench"
MIB = 2**20
NOTHING = Recipe(model=lambda: None, data=lambda: None, loss=lambda *_: None, optimizer=lambda _: None)
SMALL = {
    "llama": ("context=32", "layers=1"),
    "cruncher": ("width=64", "layers=3", "samples=4096"),
}


def measured_bytes(recipe: Recipe) -> int:
    """The peak of two real steps and of building what takes them, counted at torch's allocator."""
    world, data = World(), recipe.data()
    recipe = dataclasses.replace(recipe, data=lambda: data)
    gc.collect()
    allocator.install()
    try:
        base = allocator.live_bytes()
        allocator.reset_peak()
        batches, step = batches_of(recipe), Step(recipe, world)
        for _ in range(2):
            step(world.take(batches) for _ in range(recipe.micro_batches()))
        return allocator.peak_bytes() - base
    finally:
        allocator.uninstall()


def assert_the_boundary_is_real(recipe: Recipe, *, times: float) -> None:
    """A budget of so many times the plan's own bytes, searched, and both sides of the boundary run."""
    limit = int(times * surefoot.plan(recipe).live_bytes)
    search = what_fits(recipe, budget=Budget(memory_bytes=limit), fixed=["recompute"])
    (answer,) = search.answers
    assert answer.question == "largest micro-batch"
    assert answer.trial in search.trials
    assert answer.beyond in search.trials
    assert answer.beyond.micro_batch_size == answer.trial.micro_batch_size + 1
    assert measured_bytes(turned(recipe, answer.trial.knobs)) <= limit
    assert measured_bytes(turned(recipe, answer.beyond.knobs)) > limit


@pytest.mark.skipif(not allocator.available(), reason="counting torch's allocator needs a C++ compiler")
@pytest.mark.parametrize("name", SMALL)
def test_the_largest_micro_batch_fits_and_the_next_does_not(name):
    assert_the_boundary_is_real(surefoot.load_recipe(name, SMALL[name]), times=1.7)


@pytest.fixture
def bench_models(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("memory_models").MODELS


@pytest.mark.long
@pytest.mark.skipif(not allocator.available(), reason="counting torch's allocator needs a C++ compiler")
@pytest.mark.parametrize(
    "name",
    ["cnn", "resnet", "unet", "audio", "gpt_sdpa", "gpt_softmax", "dense_moe", "decoder", "vit", "gru"],
)
def test_of_ten_models_the_largest_micro_batch_fits_and_the_next_does_not(name, bench_models):
    torch.set_num_threads(1)  # some kernels take a buffer for each thread
    assert_the_boundary_is_real(bench_models[name](), times=1.4)


@pytest.fixture(scope="module")
def llama() -> Recipe:
    return surefoot.load_recipe("llama", ["context=32", "layers=2"])


@pytest.fixture(scope="module")
def search(llama) -> Search:
    """What fits into somewhat more than the recipe takes as it is."""
    return what_fits(llama, budget=Budget(memory_bytes=40 * MIB))


def test_every_row_is_what_its_command_plans(search):
    assert {trial.knobs["recompute"] for trial in search.front} == {"none", "full"}
    assert all(trial.holds == (trial.memory_bytes <= 40 * MIB) for trial in search.trials)
    last = search.front[-1]
    program, way, target, *words = last.command.split()
    assert (program, way) == ("surefoot", "plan")
    again = surefoot.plan(surefoot.load_recipe(target, words))
    assert (again.live_bytes, again.micro_batches) == (last.memory_bytes, last.micro_batches)


def test_few_plans_lead_to_the_boundary(search):
    """The recipe's own micro-batch, the answer, and the next; with full recomputation from near the answer on."""
    ways = [trial.knobs["recompute"] for trial in search.trials]
    assert ways[:4] == ["none", "none", "none", "full"]
    assert 5 <= len(ways) <= 7


def assert_the_cheapest_recomputation_is_real(recipe: Recipe) -> None:
    """Between what full recomputation takes and what none does: what is named fits, and the next cheaper does not."""
    none, full = (surefoot.plan(turned(recipe, {"recompute": way})).live_bytes for way in ("none", "full"))
    limit = (none + full) // 2
    found = what_fits(recipe, budget=Budget(memory_bytes=limit), fixed=["micro_batch_size"])
    chosen = {answer.question: answer for answer in found.answers}["cheapest recompute"]
    assert chosen.trial.memory_bytes <= limit < chosen.beyond.memory_bytes
    assert measured_bytes(turned(recipe, chosen.trial.knobs)) <= limit
    assert measured_bytes(turned(recipe, chosen.beyond.knobs)) > limit
    assert str(chosen.trial.knobs["recompute"]).startswith("budget=")


@pytest.mark.skipif(not allocator.available(), reason="counting torch's allocator needs a C++ compiler")
def test_where_no_recomputation_does_not_fit_a_budget_for_it_is_found(llama):
    assert_the_cheapest_recomputation_is_real(llama)


@pytest.mark.long
@pytest.mark.skipif(not allocator.available(), reason="counting torch's allocator needs a C++ compiler")
@pytest.mark.parametrize("name", ["resnet", "gpt_sdpa", "gpt_softmax", "dense_moe", "decoder", "vit"])
def test_of_models_with_blocks_the_cheapest_recomputation_fits_and_the_next_does_not(name, bench_models):
    torch.set_num_threads(1)
    assert_the_cheapest_recomputation_is_real(bench_models[name]())


def test_ranks_that_share_a_model_are_offered_a_budget_too(llama):
    shared = {"dp_shard": 2, "micro_batch_size": 32}
    none, full = (
        surefoot.plan(turned(llama, {**shared, "recompute": way}), on="2xcpu").live_bytes for way in ("none", "full")
    )
    limit = Budget(memory_bytes=(none + full) // 2)
    found = what_fits(turned(llama, shared), on="2xcpu", budget=limit, fixed=["micro_batch_size", "dp_shard"])
    chosen = {answer.question: answer for answer in found.answers}["cheapest recompute"]
    assert full < chosen.trial.memory_bytes <= limit.memory_bytes < chosen.beyond.memory_bytes


def test_a_given_global_batch_is_divided():
    recipe = surefoot.load_recipe(
        "gpt", ["layers=1", "width=32", "heads=2", "context=32", "micro_batch_size=4", "global_batch_tokens=384"]
    )
    assert list(Trials(recipe, Budget()).micro_batch_sizes(None, {})) == [1, 2, 3, 4, 6, 12]
    assert list(Trials(recipe, Budget()).micro_batch_sizes("4xcpu", {})) == [1, 3]


def test_the_largest_of_a_family():
    recipe = surefoot.load_recipe("llama", ["context=32", "layers=1"])
    budget, fixed = Budget(memory_bytes=400 * MIB), ["micro_batch_size", "recompute"]
    answer = what_fits(recipe, budget=budget, fixed=fixed, largest="size").answers[0]
    assert (answer.question, answer.trial.knobs["size"]) == ("largest size", "tiny")
    assert answer.beyond.knobs["size"] == "8b"


def test_the_next_size_is_named_also_where_a_faster_setting_answers():
    recipe = surefoot.load_recipe("llama", ["context=32", "layers=1"])
    found = what_fits(recipe, on="rtx-4090", fixed=["micro_batch_size", "recompute"], largest="size")
    answer = found.answers[0]
    assert (answer.question, answer.trial.knobs["size"]) == ("largest size", "tiny")
    assert "fused" in answer.trial.knobs
    assert (answer.beyond.knobs["size"], answer.beyond.fits) == ("8b", False)
    assert {each.trial.knobs["size"] for each in found.answers} == {"tiny"}


def test_the_most_layers():
    recipe = surefoot.load_recipe("cruncher", ["width=64", "layers=3"])
    budget = Budget(memory_bytes=MIB)
    answer = what_fits(recipe, budget=budget, fixed=["micro_batch_size"], largest="layers").answers[0]
    assert answer.question == "largest layers"
    assert answer.beyond.knobs["layers"] == answer.trial.knobs["layers"] + 1
    assert answer.trial.memory_bytes <= MIB < answer.beyond.memory_bytes


class ByRule(Trials):
    """Trials whose memory and days are shared by all devices: searches over many of them, without a plan."""

    def __init__(self, recipe: Recipe, budget: Budget, *, shared_bytes: float, days: float) -> None:
        super().__init__(recipe, budget)
        self.shared_bytes, self.days = shared_bytes, days

    def plan(self, on, knobs) -> Trial:
        devices, _ = counted(on)
        limits = [Limit("memory", "bytes", self.limit(on), self.shared_bytes / devices)]
        if self.budget.days is not None:
            limits.append(Limit("days", "days", self.budget.days, self.days / devices))
        trial = Trial(on, on, dict(knobs), 1, devices, 1, 1, 1, round(limits[0].amount), 1.0, tuple(limits))
        return self.made.setdefault(on, trial)

    def booked(self, trial, *accounts) -> float:
        return trial.memory_bytes

    def micro_batch_sizes(self, on, knobs):
        return [1]

    def blocks(self, knobs) -> list[str]:
        return []


@given(st.floats(1, 1e15), st.floats(0.001, 1e4), st.none() | st.floats(1, 30))
def test_as_few_gpus_as_fit_and_keep_the_deadline(shared_bytes, days, allowed):
    trials = ByRule(NOTHING, Budget(days=allowed), shared_bytes=shared_bytes, days=days)
    searching = Searching(trials, set())
    found = searching.fewest("h100-sxm")
    planned = {trial.devices: trial for trial in trials.made.values()}
    if found is None:
        assert not any(trial.holds for trial in planned.values())
        assert "16,384 or fewer h100-sxm" in searching.notes[0]
        return
    devices, _ = counted(found)
    assert planned[devices].holds
    assert devices == 1 or not planned[devices // 2].holds  # planned too, and not enough
    assert len(planned) <= 5


@pytest.mark.long
def test_clusters_are_compared():
    recipe = surefoot.load_recipe("gpt", ["layers=2", "width=512", "heads=4", "context=32", "global_batch_tokens=1024"])
    fixed = ["micro_batch_size", "recompute"]
    one, two = (surefoot.plan(recipe, on=on).fit.total_bytes for on in ("a100-sxm-80gb", "2xa100-sxm-80gb"))
    assert two < one
    search = what_fits(recipe, on=["Nxa100-sxm-80gb", "2xt4"], budget=Budget(memory_bytes=two), fixed=fixed)
    answers = {answer.question: answer.trial for answer in search.answers}
    assert [trial.on for trial in search.trials if not trial.holds] == ["1xa100-sxm-80gb"]
    assert answers["fewest devices"].devices == 2
    assert answers["fastest"].on == "2xa100-sxm-80gb"
    assert [trial.token_dollars is None for trial in search.trials if trial.on == "2xt4"] == [True]
    assert "cheapest" not in answers  # one price alone is no comparison


def test_refused_is_what_cannot_be_searched(llama):
    with pytest.raises(BudgetError, match="fit into how much memory"):
        what_fits(llama)
    with pytest.raises(RecipeError, match=r"no knob 'corpus' with values to search.*size, context"):
        what_fits(llama, budget=Budget(memory_bytes=1), largest="corpus")
    unnamed = dataclasses.replace(llama, target="")
    with pytest.raises(RecipeError, match="not loaded by name"):
        turned(unnamed, {"size": "8b"})
    assert turned(unnamed, {"micro_batch_size": 3}).micro_batch_size == 3
