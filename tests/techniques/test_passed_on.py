"""Settings that are passed on to torch: pin_memory, bucket_cap_mb, fullgraph."""

import dataclasses

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import surefoot
from surefoot import load_recipe
from surefoot.data import batches as data
from surefoot.errors import RecipeError, RunError
from surefoot.records.run import write_run
from surefoot.techniques import ddp
from surefoot.world.world import World
from tests.ranks import Case, on_ranks
from tests.resumed import NoisyReviews, StreamOfReviews, told, train_to
from tests.scored import scored
from tests.techniques.breaking import breaking
from tests.techniques.ranks import SMALL

pytestmark = pytest.mark.sweep

TWO = ["dp_replicate=2", "dp_shard=1"]


# ------------------------------------------------------------------------------------------- pin_memory


class WholeBatches(Dataset):
    """Reads whole batches, and draws nothing."""

    draws_randomness = False

    def __len__(self) -> int:
        return 16

    def __getitems__(self, numbers):
        return torch.ones(len(numbers), 3), torch.zeros(len(numbers), dtype=torch.int64)


class Copies(World):
    """Notes how each tensor is copied to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[bool] = []

    def _place(self, tensor):
        self.waited.append(True)
        return tensor

    def _copy(self, tensor):
        self.waited.append(False)
        return tensor


@pytest.fixture
def accelerated(monkeypatch):
    """An accelerator, as far as loading data is concerned; returns which loaders and tensors were pinned."""
    pinned: list[bool] = []

    class Loader(DataLoader):
        def __init__(self, *given, pin_memory=False, **named) -> None:
            pinned.append(pin_memory)
            super().__init__(*given, **named)

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(True) or self)
    monkeypatch.setattr(data, "DataLoader", Loader)
    return pinned


@pytest.mark.parametrize("make", [NoisyReviews, StreamOfReviews, WholeBatches])
@pytest.mark.parametrize("wanted", [True, False])
def test_batches_are_pinned_if_the_recipe_says_so(make, wanted, accelerated):
    recipe = scored(pin_memory=wanted, data=make)
    world = Copies()
    with torch.random.fork_rng(devices=()):
        batches = data.batches_of(recipe, ahead=True)
        world.take(batches)
    batches.close()
    assert set(accelerated) == ({wanted} if make is not WholeBatches or wanted else set())
    assert set(world.waited) == {not wanted}


def test_a_plan_pins_nothing(accelerated):
    world = Copies()
    world.take(data.batches_of(scored(pin_memory=True)))
    assert not any(accelerated)
    assert all(world.waited)


def test_without_an_accelerator_it_changes_nothing(tmp_path):
    plain = surefoot.train(scored(max_steps=6), path=str(tmp_path / "plain"))
    pinned = surefoot.train(scored(max_steps=6, pin_memory=True, workers=1), path=str(tmp_path / "pinned"))
    assert told(plain) == told(pinned)


def test_it_may_change_on_resume(tmp_path):
    train_to(scored(max_steps=6), tmp_path / "run", 3)
    assert surefoot.train(scored(max_steps=6, pin_memory=True), path=str(tmp_path / "run")).status == "finished"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("make", [NoisyReviews, WholeBatches])
def test_on_a_gpu_batches_are_pinned(make):
    batches = data.batches_of(scored(pin_memory=True, data=make), ahead=True)
    assert all(tensor.is_pinned() for tensor in next(batches))
    batches.close()


def test_a_run_from_before_a_setting_existed_is_resumed(tmp_path):
    train_to(scored(max_steps=6), tmp_path / "run", 3)
    run = surefoot.read_run(tmp_path / "run")
    older = {name: value for name, value in run.settings.items() if name not in ("fullgraph", "bucket_cap_mb", "ema")}
    write_run(dataclasses.replace(run, settings=older))
    with pytest.raises(RunError, match="bucket_cap_mb was not given and is 3"):
        surefoot.train(scored(max_steps=6, bucket_cap_mb=3), path=str(tmp_path / "run"))
    assert surefoot.train(scored(max_steps=6), path=str(tmp_path / "run")).status == "finished"


# ------------------------------------------------------------------------------------------- bucket_cap_mb


def all_reduces(words: list[str]) -> int:
    plan = surefoot.plan(load_recipe("gpt", [*SMALL, *TWO, *words]), on="2xcpu")
    return plan.steady.tally.total("collectives/all-reduce/dp_replicate/backward")


def test_small_buckets_are_more_messages():
    assert all_reduces([]) == 1
    assert all_reduces(["bucket_cap_mb=0.02"]) > 3


def test_it_is_what_ddp_gets(monkeypatch):
    given = []
    plain = ddp.Replicas.__init__

    def noting(self, model, group, bucket_cap_mb=None):
        given.append(bucket_cap_mb)
        plain(self, model, group, bucket_cap_mb)

    monkeypatch.setattr(ddp.Replicas, "__init__", noting)
    all_reduces(["bucket_cap_mb=7"])
    assert set(given) == {7.0}


def test_the_update_stays_the_same(tmp_path):
    cases = [Case("tests.techniques.ranks", "losses", 2, ([*TWO, *more], 4)) for more in ([], ["bucket_cap_mb=0.02"])]
    (one, _), (other, _) = on_ranks(cases, tmp_path)
    assert one["losses"] == other["losses"]
    assert all(torch.equal(one["weights"][name], each) for name, each in other["weights"].items())


# ------------------------------------------------------------------------------------------- fullgraph


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_fullgraph_refuses_a_graph_break(tmp_path):
    torch.compiler.reset()
    recipe = breaking(compile="whole", max_steps=1, fullgraph=True)
    with pytest.raises(Exception, match=r"item|data-dependent|graph break|Unsupported"):
        surefoot.train(recipe, path=str(tmp_path / "run"))
    torch.compiler.reset()


@pytest.mark.parametrize("way", ["blocks", "whole"])
def test_fullgraph_is_what_compile_gets(way, monkeypatch):
    given = []
    monkeypatch.setattr(torch, "compile", lambda function, **named: given.append(named["fullgraph"]) or function)
    from surefoot.techniques import compile

    for wanted in (False, True):
        recipe = breaking(compile=way, fullgraph=wanted)
        compile.apply(recipe.model(), recipe)
        assert set(given) == {wanted}
        given.clear()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fullgraph": True}, "fullgraph=True needs compile='blocks' or compile='whole'"),
        ({"fullgraph": "yes"}, "fullgraph='yes' must be one of True, False"),
        ({"pin_memory": 1}, "pin_memory=1 must be one of True, False"),
        ({"bucket_cap_mb": 0}, "bucket_cap_mb=0 must be above 0"),
    ],
)
def test_what_they_may_not_be(changes, said):
    with pytest.raises(RecipeError, match=said):
        dataclasses.replace(scored(), **changes)
