"""A step that was saved and restored goes on as if nothing had happened, to the last bit."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from surefoot.checkpoint.outline import leaves
from surefoot.checkpoint.state import restore, state_of
from surefoot.data.batches import batches_of
from surefoot.errors import CheckpointError
from surefoot.meters import allocator
from surefoot.step import Step
from surefoot.world.world import World
from tests.checkpoint.states import OPTIMIZERS, Net, same, step_with, take


def assert_same_state(one: Any, other: Any) -> None:
    """Equal in form, dtype, strides and every bit."""
    ones, others = list(leaves(state_of(one))), list(leaves(state_of(other)))
    assert [place for place, _ in ones] == [place for place, _ in others]
    for (place, here), (_, there) in zip(ones, others, strict=True):
        if isinstance(here, torch.Tensor):
            assert (here.dtype, here.stride()) == (there.dtype, there.stride()), place
            assert torch.equal(here, there), place
        else:
            assert same(here, there), place


HALF = ("sgd-momentum", "adamw-fused", "adafactor", "asgd", "nadam")
"""Those of which some state is not of the dtype of the parameters, and two others."""


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float32) for name in OPTIMIZERS), *((name, torch.bfloat16) for name in HALF)]
)
def test_every_optimizer_goes_on_bit_for_bit(checkpoints, name, dtype):
    if name == "muon" and not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    torch.manual_seed(0)
    step = step_with(OPTIMIZERS[name], dtype=dtype)
    take(step, 3)
    checkpoints.save(3, state_of(step))
    torch.manual_seed(1)
    other = step_with(OPTIMIZERS[name], dtype=dtype)
    take(other, 1)  # whatever it has done before must be forgotten
    restore(other, checkpoints.newest())
    assert_same_state(step, other)
    assert other.model.head.weight is other.model.embedding.weight
    assert other.model.calls == step.model.calls
    take(step, 3)
    take(other, 3)
    assert_same_state(step, other)


def test_a_step_that_was_never_taken_can_be_saved(checkpoints):
    step, other = step_with(OPTIMIZERS["adamw-foreach"]), step_with(OPTIMIZERS["adamw-foreach"])
    checkpoints.save(0, state_of(step))
    assert not step.optimizer.state  # looking at it must not make it
    take(other, 1)
    restore(other, checkpoints.newest())
    assert_same_state(step, other)


def test_restoring_fills_parameters_where_they_are(checkpoints):
    step = step_with(OPTIMIZERS["adamw-foreach"])
    take(step, 2)
    checkpoints.save(2, state_of(step))
    other = step_with(OPTIMIZERS["adamw-foreach"])
    before = {name: each.data_ptr() for name, each in other.model.named_parameters()}
    restore(other, checkpoints.newest())
    assert {name: each.data_ptr() for name, each in other.model.named_parameters()} == before


def test_what_was_saved_beside_a_step_comes_back(checkpoints):
    step = step_with(OPTIMIZERS["sgd"])
    checkpoints.save(0, {**state_of(step), "tokens": 1_000_000})
    assert restore(step, checkpoints.newest())["tokens"] == 1_000_000


def test_the_order_of_parameters_in_a_group_does_not_matter(checkpoints):
    def reversed_groups(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": group["params"][::-1]} for group in groups], lr=0.01)

    step, other = step_with(OPTIMIZERS["adamw-foreach"]), step_with(reversed_groups)
    take(step, 2)
    checkpoints.save(2, state_of(step))
    restore(other, checkpoints.newest())
    for one, two in zip(step.model.parameters(), other.model.parameters(), strict=True):
        if one.requires_grad:
            assert torch.equal(step.optimizer.state[one]["exp_avg"], other.optimizer.state[two]["exp_avg"])


def test_another_model_is_refused_by_name(checkpoints):
    step, other = step_with(OPTIMIZERS["sgd"]), step_with(OPTIMIZERS["sgd"])
    checkpoints.save(0, state_of(step))
    other.model.more = nn.Linear(2, 2)
    with pytest.raises(
        CheckpointError, match=r"belongs to another model; only in this model: more\.bias, more\.weight"
    ):
        restore(other, checkpoints.newest())


def test_other_groups_are_refused(checkpoints):
    step = step_with(OPTIMIZERS["sgd"])
    other = step_with(lambda groups: torch.optim.SGD([each for group in groups for each in group["params"]]))
    checkpoints.save(0, state_of(step))
    with pytest.raises(CheckpointError, match="in other groups"):
        restore(other, checkpoints.newest())


@pytest.mark.parametrize(
    "change",
    [
        {"number": "text"},
        {"number": -1},
        {"scheduler": 7},
        {"optimizer": {"state": [], "param_groups": None}},
        {"model": 1},
    ],
)
def test_a_made_up_state_under_right_hashes_is_refused(checkpoints, change):
    """A hash tells damage, not malice: whatever a state holds, it is a `CheckpointError` that names the checkpoint."""
    step = step_with(OPTIMIZERS["sgd"])
    checkpoints.save(0, {**state_of(step), **change})
    with pytest.raises(CheckpointError, match="step-000000000 "):
        restore(step, checkpoints.newest())


def test_a_parameter_that_is_not_of_the_model_is_refused():
    step = step_with(OPTIMIZERS["sgd"])
    step.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3, 2))]})
    with pytest.raises(CheckpointError, match=r"that are not in the model, of shapes \[\(3, 2\)\]"):
        state_of(step)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
def test_the_one_step_resumes_bit_for_bit(checkpoints, small_recipe, precision):
    """A `Step` of a recipe, with schedule, clipping and scaler; the order of data is a matter of the way."""
    recipe = small_recipe("gpt", f"precision={precision}", "max_steps=10")
    world = World()
    with world:
        step, other = Step(recipe, world), Step(recipe, world)
        batches = batches_of(recipe)
        taken = [[world.take(batches) for _ in range(recipe.micro_batches())] for _ in range(6)]
        for batch in taken[:3]:
            step(batch)
        checkpoints.save(3, state_of(step))
        restore(other, checkpoints.newest())
        for batch in taken[3:]:
            assert torch.equal(step(batch).loss, other(batch).loss)
    assert_same_state(step, other)


def test_a_compiled_model_has_the_names_of_a_plain_one():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    plain, other = (
        SimpleNamespace(
            model=each,
            optimizer=torch.optim.SGD(model.parameters()),
            scheduler=SimpleNamespace(state_dict=dict),
            scaler=SimpleNamespace(state_dict=dict),
        )
        for each in (model, compiled)
    )
    names = [[place for place, _ in leaves(state_of(each))] for each in (plain, other)]
    assert names[0] == names[1]
    assert ("extra", "_extra_state", "calls") in names[1]


@pytest.mark.skipif(not allocator.available(), reason="no C++ compiler")
def test_restoring_takes_the_memory_of_what_is_restored_and_of_single_tensors(checkpoints):
    """Of the optimizer's state nothing is there yet; parameters are."""

    def made() -> Any:
        model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        return SimpleNamespace(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, number=0)

    step, other = made(), made()
    step.model(torch.randn(2, 256)).sum().backward()
    step.optimizer.step()
    checkpoints.save(1, state_of(step))
    parameters = sum(each.nbytes for each in step.model.parameters())
    gc.collect()
    allocator.install()
    try:
        before = allocator.live_bytes()
        allocator.reset_peak()
        restore(other, checkpoints.newest())
        peak = allocator.peak_bytes() - before
    finally:
        allocator.uninstall()
    assert_same_state(step, other)
    assert 2 * parameters <= peak <= 2 * parameters + 3 * 256 * 256 * 4, f"{peak / parameters:.2f} times the parameters"
