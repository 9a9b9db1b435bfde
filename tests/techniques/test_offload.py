"""Offload: the same bits, what waits in host memory and what it costs, and what is refused."""

import dataclasses
import gc

import pytest
import torch
from torch import nn

import surefoot
from surefoot.costs.budget import limits_of
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError, WorldError
from surefoot.hardware import cluster, datasheet
from surefoot.hardware.host_link import REACHED_SHARE, host_link
from surefoot.meters import allocator
from surefoot.planning.fit.search import what_fits
from surefoot.records.plan import HostFit
from surefoot.records.search import Budget
from surefoot.reports.parts import host_text
from surefoot.reports.slurm import Job, slurm_text
from surefoot.step import Step
from surefoot.techniques import offload
from surefoot.units import bytes_text, seconds_text
from surefoot.world.world import RealWorld
from tests.planned_ranks import recipe, taken_by

UNTRIED = ("fused", "compile", "loss_chunks")
"""What a search on one GPU would try too."""


@pytest.fixture
def copied(monkeypatch) -> list[int]:
    """The bytes of every copy that is made in host memory."""
    sizes: list[int] = []
    to_host = offload.to_host

    def noted(tensor):
        sizes.append(tensor.nbytes)
        return to_host(tensor)

    monkeypatch.setattr(offload, "to_host", noted)
    return sizes


def trained(settings, steps: int = 3):
    made = recipe(micro_batch_size=4, **settings)
    with RealWorld() as world:
        step, batches = Step(made, world), batches_of(made)
        losses = [step(world.take(batches) for _ in range(step.micro_batches)).loss.item() for _ in range(steps)]
        return losses, step.model.state_dict()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "bf16-mixed", "max_grad_norm": 1.0},
        {"recompute": "full"},
        {"recompute": "selective", "precision": "bf16-true"},
        {"loss_chunks": 4},
        pytest.param(
            {"compile": "blocks"},
            marks=[pytest.mark.sweep, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")],
        ),
    ],
    ids=str,
)
def test_an_update_keeps_its_bits(settings, copied):
    losses, weights = trained(settings)
    assert not copied
    offloaded, others = trained({**settings, "offload": "activations"})
    assert copied
    assert offloaded == losses
    assert all(torch.equal(others[name], each) for name, each in weights.items())


def test_running_statistics_and_dropout_stay_the_same(copied):
    rows = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    normed = surefoot.Recipe(
        model=lambda: nn.Sequential(
            nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 1)
        ),
        data=lambda: torch.utils.data.TensorDataset(rows),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=16,
        global_batch_tokens=32,
    )
    states = []
    for kind in ("none", "activations"):
        with RealWorld() as world:
            step = Step(dataclasses.replace(normed, offload=kind), world)
            for _ in range(2):
                step([(rows[:16],), (rows[16:32],)])
            states.append(step.model.state_dict())
    assert copied
    assert all(torch.equal(states[1][name], each) for name, each in states[0].items())


class Shared(nn.Module):
    """Keeps one tensor three times, as itself, as a view and after a change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        made = self.first(x).tanh()
        twice = self.second(made) + made.mT.square().mT
        with torch.no_grad():
            made.mul_(1.0)  # another version of the same memory
        return twice * made.detach()


def step_of(model, batch, world):
    activations = offload.Activations(model, world)
    with activations.around(batch):
        loss = model(batch).sum()
    return loss


def test_each_storage_is_copied_once_for_each_of_its_versions(copied):
    model, batch = Shared(), torch.randn(32, 64)
    with RealWorld() as world:
        step_of(model, batch, world)
    assert copied == [batch.nbytes, batch.nbytes]


def test_parameters_the_batch_and_small_tensors_stay(copied):
    model, batch = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2)), torch.randn(32, 64)
    with RealWorld() as world:
        step_of(model, batch, world).backward()
    assert copied == [batch.nbytes]  # the result of the first layer


def test_casts_that_autocast_keeps_of_weights_stay(copied):
    model, batch = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2)), torch.randn(32, 64)
    with RealWorld() as world, torch.autocast("cpu", torch.bfloat16):
        step_of(model, batch, world).backward()
    assert copied == [batch.nbytes // 2, batch.nbytes // 2]  # the batch in bfloat16, and the first result


def test_a_graph_without_a_backward_is_freed_without_the_garbage_collector():
    """A result that is kept by its own node and stays on the device would hold the node."""
    model, batch = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Sigmoid()), torch.randn(32, 64)
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, offload.Waiting) for each in gc.get_objects())
        with RealWorld() as world:
            step_of(model, batch, world)
        assert sum(isinstance(each, offload.Waiting) for each in gc.get_objects()) == before
    finally:
        gc.enable()


@pytest.mark.sweep
@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    "settings", [{}, {"recompute": "full", "precision": "bf16-mixed"}, {"global_batch_tokens": 32 * 32}], ids=str
)
def test_a_plan_counts_what_a_step_takes(settings):
    made = recipe(**{"micro_batch_size": 16, "offload": "activations", **settings})
    plan = surefoot.plan(made, on="1xcpu")
    assert (plan.first.peak.peak_bytes, plan.steady.peak.peak_bytes) == taken_by(made)["peaks"]
    assert plan.steady.tally.total("memory/offloaded") > 0
    assert plan.host is None


def test_a_plan_for_a_gpu_moves_activations_to_the_account_of_the_host():
    plain, offloaded = (
        surefoot.plan(recipe(micro_batch_size=64, offload=each), on="h100-sxm") for each in ("none", "activations")
    )
    held = plain.steady.tally.total("memory/activations")
    waits = offloaded.steady.tally.total("host/offloaded")
    assert waits == pytest.approx(held, rel=1e-3)
    assert offloaded.steady.tally.total("memory/activations") < 0.01 * held
    assert offloaded.steady.peak.peak_bytes < plain.steady.peak.peak_bytes
    assert offloaded.reserved_bytes["expandable"] < plain.reserved_bytes["expandable"]
    for phase in ("forward", "loss", "backward"):
        assert plain.steady.tally.total(f"flops/{phase}") == offloaded.steady.tally.total(f"flops/{phase}")
    over = offloaded.steady.tally.under("transfers")
    assert over == {"to_host": waits, "to_device": waits}  # each storage once in each direction
    bandwidth = REACHED_SHARE * host_link(datasheet("h100-sxm"))[0]
    longer = offloaded.time.seconds - plain.time.seconds
    scale = offloaded.time.bounds["transfers"] / (2 * waits / bandwidth)
    assert 0.8 < scale < 1.25  # the whole time model is corrected by one factor
    assert longer == pytest.approx(offloaded.time.bounds["transfers"], rel=0.01)
    assert any("PCIe 5.0 x16" in said for said in offloaded.time.assumptions)
    assert any(said.startswith("offload=activations: what backward needs waits") for said in offloaded.choices)


def test_pinned_blocks_are_powers_of_two():
    tally = surefoot.plan(recipe(micro_batch_size=48, offload="activations"), on="h100-sxm").steady.tally
    assert tally.total("host/pinned-blocks") > 0
    assert tally.total("host") == tally.total("host/offloaded") + tally.total("host/pinned-blocks")


@pytest.mark.sweep
@pytest.mark.parametrize("settings", [{}, {"recompute": "full", "dp_shard": 2}], ids=str)
def test_a_few_blocks_stand_for_all(settings, monkeypatch):
    from surefoot.planning import recipe_plan as way

    monkeypatch.setattr(way, "FEWEST", 6)
    many, on = recipe(layers=7, offload="activations", **settings), "2xh100-sxm" if settings else "h100-sxm"
    few, full = surefoot.plan(many, on=on), surefoot.plan(many, on=on, reuse=False)
    assert few.blocks == "7 blocks of blocks from runs with 3, 4 and 5"
    assert dataclasses.replace(few, blocks="") == full
    assert few.host.rank_bytes > 0


def test_the_verdict_counts_the_ranks_of_a_node():
    plan = surefoot.plan(recipe(micro_batch_size=64, offload="activations"), on="g5.12xlarge")
    assert (plan.host.ranks, plan.host.memory_bytes) == (4, 192 * 2**30)
    assert plan.host.fits
    assert host_text(plan).endswith("for the 4 ranks of a node, of 192.00 GiB")
    small = dataclasses.replace(plan, host=HostFit(100, 4, 399))
    (limit,) = (each for each in limits_of(small, Budget()) if each.name == "host memory")
    assert (limit.amount, limit.holds) == (400, False)
    with pytest.raises(WorldError, match="does not fit its host"):
        slurm_text(small, Job(("train",), resumes=True))
    assert HostFit(100, 4).fits  # of an unknown size nothing is said
    assert "the size of the host is not known" in host_text(dataclasses.replace(plan, host=HostFit(100, 4)))


def test_links_to_the_host():
    assert host_link(datasheet("a100-sxm-80gb")) == (31e9, "PCIe 4.0 x16")
    assert host_link(datasheet("rtx-4060")) == (15.75e9, "PCIe 4.0 x8")
    assert host_link(datasheet("gb200")) == (450e9, "NVLink-C2C")
    assert host_link(datasheet("apple-m4-max")) == (0, "")
    assert cluster("8xp5.48xlarge").host_bytes == 2048 * 2**30
    assert cluster("8xh100-sxm").host_bytes == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"recompute": "budget=0.5"}, r"offload=activations does not work with recompute='budget=0\.5'"),
        ({"offload": "all"}, "offload 'all' is not one of none, activations"),
    ],
)
def test_what_is_refused(settings, said):
    with pytest.raises(RecipeError, match=said):
        trained({"offload": "activations", **settings})


def test_tp_is_refused():
    with pytest.raises(RecipeError, match="offload=activations does not work with tp"):
        surefoot.plan(recipe(tp=2, dp_shard=1, offload="activations"), on="2xcpu")


def test_a_search_offloads_last_and_says_what_it_costs():
    made, fixed = recipe(micro_batch_size=512), {"micro_batch_size", "recompute", *UNTRIED}
    plain, offloaded = (
        surefoot.plan(dataclasses.replace(made, offload=each), on="h100-sxm", resume=False)
        for each in ("none", "activations")
    )
    between = Budget(memory_bytes=(plain.fit.total_bytes + offloaded.fit.total_bytes) // 2)
    found = what_fits(made, on="h100-sxm", budget=between, fixed=fixed)
    fastest = next(answer.trial for answer in found.answers if answer.question == "fastest")
    assert (fastest.knobs, fastest.memory_bytes) == ({"offload": "activations"}, offloaded.fit.total_bytes)
    (said,) = (note for note in found.notes if note.startswith("offload=activations was tried last"))
    assert f"{bytes_text(offloaded.host.rank_bytes)} of each device wait in host memory" in said
    assert f"a step of {seconds_text(offloaded.time.seconds)} transfers for " in said
    assert said.endswith(f"without, it would take {seconds_text(plain.time.seconds)}")
    enough = what_fits(made, on="h100-sxm", budget=Budget(memory_bytes=plain.fit.total_bytes), fixed=fixed)
    assert [trial.knobs for trial in enough.trials] == [{}]  # what fits without it is not offloaded
    kept = what_fits(made, on="h100-sxm", budget=between, fixed={*fixed, "offload"})
    assert not kept.answers
