"""Freeze: parameters chosen by name stay as they are, in every way and on every layout of ranks."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import SequenceParallel
from typer.testing import CliRunner

import surefoot
from surefoot import load_recipe
from surefoot.checkpoint.store import Checkpoints
from surefoot.cli.main import app
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError, RunError
from surefoot.planning import recipe_plan as way
from surefoot.step import Step
from surefoot.trees import local_part
from surefoot.world.world import FakeWorld, RealWorld, World
from tests.ranks import Case, on_ranks
from tests.resumed import assert_same_bits
from tests.techniques.ranks import SMALL

pytestmark = pytest.mark.sweep


def names_of(recipe) -> list[str]:
    return [name for name, _ in recipe.model().named_parameters()]


FIRST = "freeze=token.*,position.*,blocks.0.*"
"""All that runs before the second block: backward ends there."""


def moved(words: list[str]) -> tuple[dict[str, bool], list[float], tuple[str, ...]]:
    """Which parameters of a small gpt move in three steps, on this many ranks; the losses; and what the step says."""
    usual = [] if any(word.startswith("freeze=") for word in words) else ["freeze=blocks.0.*,*norm*"]
    recipe = load_recipe("gpt", [*SMALL, *usual, *words])
    with RealWorld() as world:
        step = Step(recipe, world)
        before = {name: local_part(each.detach()).clone() for name, each in step.model.named_parameters()}
        batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        losses = [step(world.take(batches) for _ in range(step.micro_batches)).loss.item() for _ in range(3)]
        after = {name: local_part(each.detach()) for name, each in step.model.named_parameters()}
        return {name: not torch.equal(before[name], after[name]) for name in before}, losses, step.choices()


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    words = {"one": [], "replicated": ["dp_replicate=2", "dp_shard=1"], "sharded": ["dp_shard=2"], "cut": ["tp=2"]}
    cases = [
        Case("tests.techniques.test_freeze", "moved", 1 if name == "one" else 2, (each,))
        for name, each in words.items()
    ]
    return dict(zip(words, on_ranks(cases, tmp_path_factory.mktemp("freeze")), strict=True))


@pytest.mark.parametrize("layout", ["one", "replicated", "sharded", "cut"])
def test_frozen_parameters_stay_and_all_others_move(layout, layouts):
    alone = layouts["one"][0]
    for moves, losses, choices in layouts[layout]:
        assert [name for name, each in moves.items() if not each] == [
            name for name in moves if name.startswith("blocks.0.") or "norm" in name
        ]
        assert any(moves.values())
        assert losses == pytest.approx(alone[1], rel=1e-5)
        assert any("are frozen" in each for each in choices)
        assert [each for each in choices if "are frozen" in each] == [each for each in alone[2] if "are frozen" in each]


@pytest.mark.parametrize("more", ["", ",blocks.1.*"])
def test_backward_gathers_no_frozen_blocks_before_the_first_that_is_trained(more, tmp_path):
    words = [FIRST + more]
    cases = [Case("tests.techniques.test_freeze", "moved", ranks, (words,)) for ranks in (1, 2)]
    [alone], many = on_ranks(cases, tmp_path)
    for moves, losses, _ in many:
        assert moves == alone[0]
        assert losses == pytest.approx(alone[1], rel=1e-5)
    tally = surefoot.plan(load_recipe("gpt", [*SMALL, *words]), on="2xcpu").steady.tally
    forward, backward = (tally.total(f"collectives/all-gather/dp_shard/{phase}") for phase in ("forward", "backward"))
    micro_batches = 4
    assert (forward / micro_batches, backward / micro_batches) == (3, 0 if more else 1)


def test_a_norm_that_tensor_parallelism_makes_anew_stays_frozen():
    recipe = dataclasses.replace(
        load_recipe("regression"),
        model=lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 1)),
        tensor_plan=lambda model: {"0": SequenceParallel()},
        tp=2,
        freeze="0.*",
    )
    with FakeWorld(ranks=2) as world:
        step = Step(recipe, world)
    assert [each.requires_grad for each in step.model.parameters()] == [False, False, True, True]


def test_the_optimizer_gets_what_is_trained(small_recipe):
    recipe = small_recipe("gpt")
    first = names_of(recipe)[0]
    with World() as world:
        step = Step(dataclasses.replace(recipe, freeze=first), world)
    held = sum(each.numel() for group in step.optimizer.param_groups for each in group["params"])
    frozen = dict(step.model.named_parameters())[first].numel()
    assert held == step.parameter_count - frozen
    (said,) = [each for each in step.choices() if each.startswith("freeze=")]
    assert f"{frozen:,} of {step.parameter_count:,} parameters, in 1 tensors, are frozen" in said


@pytest.mark.parametrize("name", ["gpt", "fashion-convolutional", "gan"])
def test_a_plan_equals_the_allocator(name, small_recipe):
    recipe = small_recipe(name)
    pattern = next(iter(names_of(recipe) if name != "gan" else ["generator.0.weight"]))
    recipe = dataclasses.replace(recipe, freeze=(pattern, "*bias"))
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.steady.peak.peak_bytes == profile.steady.peak.peak_bytes
    assert plan.steady.peak.peak_bytes == pytest.approx(profile.allocated_peak_bytes, rel=2e-4)
    assert plan.steady.tally.total("flops") == profile.steady.tally.total("flops")
    assert plan.state_bytes < surefoot.plan(dataclasses.replace(recipe, freeze=None)).state_bytes
    assert any(each.startswith(f"freeze={pattern},*bias: ") for each in plan.choices)


@pytest.mark.parametrize("pattern", ["blocks.*", "blocks.11.*", "blocks.[0-3].*", "blocks.*norm*"])
def test_a_plan_from_a_few_blocks_is_that_of_all(pattern, small_recipe, monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 7)
    recipe = load_recipe("gpt", ["layers=12", "width=16", "heads=2", "context=16", "micro_batch_size=2"])
    recipe = dataclasses.replace(recipe, global_batch_tokens=None, freeze=pattern)
    few, every = surefoot.plan(recipe), surefoot.plan(recipe, reuse=False)
    assert "runs with 3, 4 and 5" in few.blocks
    assert dataclasses.replace(few, blocks="") == dataclasses.replace(every, blocks="")


def test_a_resumed_run_has_the_same_bits_and_another_pattern_is_refused(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=6", "save_every=2")
    recipe = dataclasses.replace(recipe, freeze=(names_of(recipe)[0],))
    assert_same_bits(recipe, tmp_path, 3)
    held = Checkpoints(tmp_path / "alone" / "checkpoints").newest().load()
    assert recipe.freeze not in held["optimizer"]["state"]
    with pytest.raises(RunError, match=r"freeze was '.*' and is None"):
        surefoot.train(dataclasses.replace(recipe, freeze=None), path=str(tmp_path / "alone"))


def test_the_checks_find_nothing(small_recipe):
    recipe = small_recipe("fashion-convolutional")
    recipe = dataclasses.replace(recipe, freeze=names_of(recipe)[0])
    assert [each.check for each in surefoot.check(recipe).findings] == []


def test_a_tied_parameter_is_frozen_by_any_of_its_names():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(4, 3), nn.Linear(3, 4)
            self.head.weight = self.embed.weight

    recipe = dataclasses.replace(load_recipe("regression"), model=Tied, freeze="head.weight")
    with World() as world:
        assert not Step(recipe, world).model.embed.weight.requires_grad


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("blokcs.0.*", r"freeze='blokcs\.0\.\*' matches no parameter of gpt; did you mean blocks\.0\.\*"),
        ("blocks.0", r"did you mean blocks\.0\.\*"),
        ("blocks.0.*,qqqqqq", r"freeze='qqqqqq' matches no parameter of gpt; its parameters are .*, \.\.\."),
        ("*", "freezes every parameter of gpt: nothing is left to train"),
        ((), "must be a pattern of parameter names"),
        (3, "must be a pattern of parameter names"),
        ("", "must be a pattern of parameter names"),
        (("blocks.*", 3), "must be a pattern of parameter names"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern, said, small_recipe):
    with pytest.raises(RecipeError, match=said):
        surefoot.plan(dataclasses.replace(small_recipe("gpt"), freeze=pattern))


def test_the_command_line_says_how_many():
    words = ["layers=2", "width=32", "heads=2", "context=32"]
    done = CliRunner().invoke(app, ["plan", "gpt", *words, "freeze=blocks.0.*, *.bias", "--tables"])
    assert done.exit_code == 0, done.output
    assert "freeze=blocks.0.*,*.bias:" in " ".join(done.output.split())
    refused = CliRunner().invoke(app, ["plan", "gpt", *words, "freeze=block"])
    assert isinstance(refused.exception, RecipeError) or refused.exit_code == 2
