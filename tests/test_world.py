"""Worlds: the fake one allocates nothing and simulates ranks; the tiny one cuts steps down."""

import copy
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import surefoot
from surefoot.errors import RecipeError, WorldError
from surefoot.world.known_values import KNOWN_ELEMENTS
from surefoot.world.world import FakeWorld, TinyWorld, World

SEVEN_BILLION = """
import re
from surefoot import load_recipe, plan
words = ["layers=36", "width=4096", "heads=32", "context=2048", "micro_batch_size=1", "global_batch_tokens=2048"]
planned = plan(load_recipe("gpt", words))
highest = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]  # ru_maxrss counts the parent too
print(planned.parameters, planned.steady.peak.peak_bytes, highest)
"""


def test_planning_a_7b_model_stays_under_one_gibibyte():
    done = subprocess.run([sys.executable, "-c", SEVEN_BILLION], capture_output=True, text=True, check=True)
    parameters, peak_bytes, resident_kib = map(int, done.stdout.split())
    assert parameters > 7e9
    assert peak_bytes > 16 * parameters
    assert resident_kib * 1024 < 2**30


def test_fake_tensors_have_no_memory_and_scalars_stay_real():
    with surefoot.fake_world():
        assert torch.arange(5).nonzero().flatten().tolist() == [1, 2, 3, 4]
        assert isinstance(torch.arange(2.0), FakeTensor)
        assert isinstance(torch.zeros(2**21, dtype=torch.int64), FakeTensor)
        big = torch.empty(10**6, 10**6)
        assert isinstance(big, FakeTensor)
        counter = torch.tensor(0.0)
        counter += 1
        assert counter.item() == 1.0
        assert torch.zeros(()).item() == 0.0
        assert not isinstance(counter, FakeTensor)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_copied_layers_stay_in_the_world_of_the_first():
    with FakeWorld():
        layer = copy.deepcopy(nn.Linear(4, 4))
        with torch.no_grad():
            assert torch.ops.aten.copy_.default(layer.weight, torch.zeros(4, 4)) is layer.weight


def computed(*shape: int) -> torch.Tensor:
    """A tensor of a fake world whose values nobody knows: a part of one that is too large to be computed."""
    return torch.ones(2 * KNOWN_ELEMENTS)[: math.prod(shape)].view(shape)


def test_a_number_that_no_plan_can_know_is_answered_and_noted():
    world = FakeWorld()
    with world:
        assert computed(3).sum().item() == 1.0
        assert computed(3).long().sum().item() == 1
    assert world.assumptions == {
        ".item() on a float32 tensor answered 1": 1,
        ".item() on a int64 tensor answered 1": 1,
    }


@pytest.mark.parametrize(
    "test",
    [
        lambda x: torch.equal(x, x * 2),
        lambda x: bool((x > 2)[0]),
        lambda x: torch.allclose(x, x + 1),
    ],
)
def test_a_branch_on_many_values_is_refused_with_a_reason(test):
    with surefoot.fake_world(), pytest.raises(WorldError, match="reads the values of a tensor"):
        test(computed(3))


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (lambda x: x.sum() > 2, False),
        (lambda x: x.sum() > torch.tensor(0.5), True),
        (lambda x: x.sum() <= x.mean(), True),
        (lambda x: x[:1] != 1, False),
        (lambda x: ~(x.sum() < 0) & (x.mean() == 1), True),
        (lambda x: torch.equal(x.sum() > 2, x.new_zeros((), dtype=torch.bool)), True),
        (lambda x: isinstance(max(0.5, x.norm()), torch.Tensor), True),
    ],
)
def test_a_single_number_is_compared_as_item_would_answer(test, expected):
    world = FakeWorld()
    with world:
        assert bool(test(computed(8) * 3)) is expected
    assert world.assumptions == {"a number that is compared is 1": 1}


@pytest.mark.parametrize(("name", "expected"), [("all", True), ("any", False)])
def test_values_are_taken_to_be_valid(name, expected):
    world = FakeWorld()
    with world:
        assert bool(getattr(computed(8) * 3 > 2, name)()) is expected
        assert bool(getattr(computed(8, 2) > 2, name)(dim=(0, 1))) is expected
    assert world.assumptions == {f".{name}() of computed values answered {expected}": 2}


def test_arrays_of_fake_tensors_are_ones():
    before = FakeTensor.numpy
    world = FakeWorld()
    with world:
        assert (computed(2, 3).numpy() == np.ones((2, 3), dtype=np.float32)).all()
        assert np.asarray(computed(4).half()).dtype == np.float16
        with pytest.raises(RuntimeError, match="requires grad"):
            computed(3).requires_grad_().numpy()
        assert computed(3).requires_grad_().numpy(force=True).sum() == 3
        with pytest.raises(WorldError, match=r"reads 1,100,000 values with \.numpy\(\)"):
            torch.empty(1_100_000).numpy()
        with FakeWorld():
            pass
        assert computed(2).numpy().sum() == 2
    assert FakeTensor.numpy is before
    assert world.assumptions[".numpy() on a float32 tensor answered ones"] == 4


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (lambda x: torch.isfinite(x).all(), True),
        (lambda x: torch.isnan(x).any(), False),
        (lambda x: ~torch.isfinite(x.sum()), False),
        (lambda x: torch.isinf(x).any() | torch.isnan(x).any(), False),
        (lambda x: torch.isnan(x).logical_not().all(), True),
        (lambda x: (x != x).any(), False),
        (lambda x: torch.isnan(x).any().logical_or(torch.isinf(x).any()), False),
    ],
)
def test_numbers_are_taken_to_be_finite(test, expected):
    world = FakeWorld()
    with world:
        assert bool(test(computed(8) * 2)) is expected
    assert world.assumptions == {"all numbers are finite": 1}
    assert bool(test(torch.ones(8))) is expected


def test_an_assumption_reaches_the_plan(small_recipe):
    import dataclasses

    recipe = small_recipe("cruncher")

    def loss(model, batch):
        total, count = recipe.loss(model, batch)
        _ = total.item()
        return total, count

    plan = surefoot.plan(dataclasses.replace(recipe, loss=loss))
    assert plan.assumptions == (".item() on a float32 tensor answered 1 (2 times)",)


@pytest.mark.parametrize("ranks", [2, 1024])
def test_fake_ranks_run_real_distributed_code(ranks: int):
    from torch.distributed.fsdp import fully_shard

    with surefoot.fake_world(ranks=ranks):
        assert dist.get_world_size() == ranks
        model = nn.Sequential(nn.Linear(2048, 64), nn.Linear(64, 1))
        fully_shard(model)
        model(torch.ones(2, 2048)).sum().backward()
        assert model[0].weight.grad.to_local().shape == (max(1, 64 // ranks), 2048)
    assert not dist.is_initialized()


def test_a_fake_world_needs_at_least_one_rank_and_no_other_process_group():
    with pytest.raises(WorldError, match="at least 1 rank"):
        FakeWorld(ranks=0)
    with surefoot.fake_world(ranks=2), pytest.raises(WorldError, match="already initialised"):
        surefoot.fake_world(ranks=2).__enter__()


def test_a_tiny_world_cuts_the_batch_and_keeps_accumulation(small_recipe):
    recipe = TinyWorld(samples=2).fit(small_recipe("gpt"))
    assert recipe.micro_batch_size == 2
    assert recipe.micro_batches() == 2
    assert World().fit(recipe) is recipe


def test_batches_that_share_storage_go_on_sharing_it():
    world = FakeWorld()
    whole = torch.arange(10)
    with world:
        left, right = world.take(iter([(whole[:-1], whole[1:])]))
    assert left.untyped_storage()._cdata == right.untyped_storage()._cdata
    assert left.untyped_storage().nbytes() == 80


def test_global_batch_must_divide():
    with pytest.raises(RecipeError, match=r"does not divide .* try global_batch_tokens=8192"):
        surefoot.load_recipe("gpt", ["global_batch_tokens=8000"])


def test_no_warning_of_torch_about_fakes_is_shown():
    layer = "nn.TransformerEncoderLayer(16, 2, batch_first=True)"
    program = f"""
import torch, surefoot
from torch import nn
recipe = surefoot.recipe_of(lambda: nn.TransformerEncoder({layer}, 2), torch.zeros(2, 4, 16))
surefoot.plan(recipe)
with surefoot.fake_world(ranks=2):
    nn.Linear(4, 4)(torch.zeros(2, 4)).sum().backward()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
