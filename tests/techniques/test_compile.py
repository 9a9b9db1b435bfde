"""Compile: where it holds, what it leaves alone, and which graph breaks it names."""

import dataclasses

import pytest
import torch
from torch import nn

import surefoot
from surefoot import Recipe
from surefoot.costs.diagnosis import diagnose
from surefoot.costs.ledgers import ledger_of
from surefoot.errors import RecipeError
from surefoot.reports.console import as_text
from surefoot.reports.gather import signs_of
from surefoot.reports.profile import profile_text
from surefoot.step import Step
from surefoot.techniques.compile import graph_breaks
from surefoot.world.world import FakeWorld, TinyWorld, World
from tests.techniques.breaking import LINE, breaking

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler itself


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def graphs_run(recipe: Recipe, world: World) -> int:
    """How many compiled graphs one forward runs."""
    ran = []

    def backend(graph, inputs):
        return lambda *args: ran.append(1) or graph.forward(*args)

    with torch.compiler.set_stance(force_backend=backend), world:
        Step(recipe, world).model(torch.randn(2, 4))
    return len(ran)


def test_blocks_or_the_whole_model_are_compiled_in_a_real_world_only():
    smooth = lambda: nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))  # noqa: E731
    recipe = breaking(model=smooth)
    assert graphs_run(recipe, World()) == 0
    assert graphs_run(dataclasses.replace(recipe, compile="blocks"), World()) == 3
    assert graphs_run(dataclasses.replace(recipe, compile="whole"), World()) == 1
    assert graphs_run(dataclasses.replace(recipe, compile=True), World()) == 1
    assert graphs_run(dataclasses.replace(recipe, compile="whole"), TinyWorld()) == 0
    assert not FakeWorld.compiles


@pytest.mark.parametrize("way", ["blocks", "whole"])
def test_graph_breaks_are_named_with_file_and_line(way: str):
    """If this fails on `compile_subgraph_reason`, torch no longer tells a backend why a graph ended."""
    with World() as world:
        step = Step(breaking(compile=way), world)
        breaks = graph_breaks(lambda: step.model(torch.randn(2, 4)))
    assert [each.where for each in breaks] == [LINE]
    assert "Tensor.item()" in breaks[0].reason


def test_code_without_a_break_has_none():
    compiled = torch.compile(lambda x: x.sin().cos())
    assert graph_breaks(lambda: compiled(torch.randn(3))) == ()


def test_profile_lists_graph_breaks_and_equals_the_plan():
    with torch.compiler.set_stance(force_backend="eager"):
        recipe = breaking(compile="whole")
        plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.first == profile.first
    assert plan.steady == profile.steady
    (graph_break,) = profile.graph_breaks
    assert graph_break.startswith(f"{LINE}: ")
    assert profile.recompilations == 0
    told = as_text(profile_text(profile, ledger_of(plan, profile)), width=300)
    assert f"graph break at {LINE}: " in told
    assert [each.check for each in diagnose(signs_of(profile)) if each.check.startswith("graph")] == ["graph-breaks"]
    assert "compiled again" not in told
    assert plan.choices[0].startswith(
        "compile=whole: the seconds are those of fused kernels, the memory is that of the step as written"
    )
    assert "in four of five cases" in plan.choices[0]
    assert surefoot.check(recipe).findings == ()


class Restless(nn.Module):
    """Says something else in every call, which compiled code must not forget."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.said, self.calls = nn.Linear(4, 4), "", 0

    def forward(self, x):
        return self.linear(x) * len(self.said)


def test_profile_counts_what_is_compiled_again():
    def loss(model, batch):
        model.calls += 1
        model.said = "a" * model.calls
        return model(batch[0]).square().mean()

    with torch.compiler.set_stance(force_backend="eager"):
        profile = surefoot.profile(breaking(model=Restless, loss=loss, compile=True), timed_steps=2)
    assert profile.recompilations >= 2
    told = as_text(profile_text(profile, ledger_of(None, profile)), width=300)
    assert f"{profile.recompilations} graphs compiled again after the first step" in told
    assert "recompilations" in [each.check for each in diagnose(signs_of(profile))]


def test_state_keeps_its_names_and_a_compiled_run_is_exported(small_recipe, tmp_path):
    recipe = small_recipe("gpt", "max_steps=1", "compile=blocks")
    with torch.compiler.set_stance(force_backend="aot_eager"):
        run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert surefoot.export(run.path).weights_difference == 0
    with World() as world:
        assert list(Step(recipe, world).model.state_dict()) == list(recipe.model().state_dict())


def test_words_and_booleans(small_recipe):
    assert small_recipe("gpt", "compile=off").compile == "off"
    assert small_recipe("gpt", "compile=true").compile == "whole"
    assert breaking(compile=False).compile == "off"
    made = small_recipe("gpt", "compile=blocks", "compile_mode=max-autotune", "compile_dynamic=no")
    assert (made.compile, made.compile_mode, made.compile_dynamic) == ("blocks", "max-autotune", False)
    with pytest.raises(RecipeError, match="compile 'some' is not one of off, blocks, whole"):
        breaking(compile="some")
    with pytest.raises(RecipeError, match="compile_mode 'fast' is not one of default"):
        breaking(compile_mode="fast")


def test_a_model_without_blocks_is_refused(small_recipe):
    with World() as world, pytest.raises(RecipeError, match="use compile='whole'"):
        Step(small_recipe("fashion", "compile=blocks"), world)


def test_graphs_that_are_compiled_are_counted():
    """`unique_graphs` of torch's own counters: a new shape is a new graph."""
    from surefoot.torch_inside.compiled import graphs_compiled

    compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    before = graphs_compiled()
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert graphs_compiled() == before + 1
    compiled(torch.ones(5))
    assert graphs_compiled() == before + 2, "torch counts compiled graphs elsewhere now"
