"""The step: however it is cut, the same update; nothing of it instrumented."""

import dataclasses
import inspect
import re
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import surefoot
from surefoot import Recipe
from surefoot.errors import RecipeError
from surefoot.step import Step, Sums
from surefoot.world.world import World


def uneven_loss(model, batch):
    """A loss over the samples that are not masked, so that micro-batches differ in their count."""
    x, y, kept = batch
    return (((model(x) - y) ** 2).squeeze(1) * kept).sum(), kept.sum()


def recipe(**changes) -> Recipe:
    plain = Recipe(
        model=lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)),
        data=lambda: None,
        loss=uneven_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return dataclasses.replace(plain, **changes)


def batch_of(samples: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    kept = (torch.rand(samples, generator=generator) < 0.6).float()
    kept[0] = 1.0
    return torch.randn(samples, 6, generator=generator), torch.randn(samples, 1, generator=generator), kept


def update(made: Recipe, batches) -> list[torch.Tensor]:
    with World() as world:
        step = Step(made, world)
        before = [parameter.detach().clone() for parameter in step.parameters]
        step(batches)
        return [now.detach() - then for now, then in zip(step.parameters, before, strict=True)]


@settings(max_examples=20, deadline=None)
@given(cuts=st.sets(st.integers(1, 31), max_size=8), seed=st.integers(0, 1000))
def test_the_update_does_not_depend_on_the_cut(cuts, seed):
    whole = batch_of(32, seed)
    edges = [0, *sorted(cuts), 32]
    pieces = [tuple(part[low:high] for part in whole) for low, high in pairwise(edges)]
    pieces = [piece for piece in pieces if piece[2].sum() > 0]
    full = recipe(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    one, many = (torch.cat([each.flatten() for each in update(full, cut)]) for cut in ([whole], pieces))
    assert torch.linalg.vector_norm(one - many) <= 1e-5 * torch.linalg.vector_norm(one)


def test_the_update_is_that_of_the_plain_loop_bit_for_bit():
    x, y, _ = batch_of(8, 1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    mean = recipe(loss=lambda model, batch: F.mse_loss(model(batch[0]), batch[1]))
    for mine, plain, start in zip(update(mean, [(x, y)]), model.parameters(), before, strict=True):
        assert torch.equal(mine, plain.detach() - start)


def test_clipping_comes_after_normalising():
    steep = recipe(loss=lambda model, batch: (1e3 * uneven_loss(model, batch)[0], batch[2].sum()), max_grad_norm=1.0)
    pieces = [batch_of(8, seed) for seed in range(4)]
    moved = update(steep, pieces)
    norm = torch.linalg.vector_norm(torch.cat([each.flatten() for each in moved]))
    assert norm == pytest.approx(0.1 * 1.0, rel=1e-4)


def test_float16_scaling_skips_an_infinite_step_and_lowers_the_scale():
    with World() as world:
        step = Step(recipe(precision="16-mixed", optimizer=lambda p: torch.optim.SGD(p, lr=0.1)), world)
        before = [parameter.detach().clone() for parameter in step.parameters]
        scale = step.scaler.get_scale()
        x, y, kept = batch_of(8, 0)
        step([(x, y * 1e4, kept)])  # finite, until the gradients are scaled
        assert all(torch.equal(now, then) for now, then in zip(step.parameters, before, strict=True))
        assert step.scaler.get_scale() == scale / 2
        step([(x, y, kept)])
        assert not all(torch.equal(now, then) for now, then in zip(step.parameters, before, strict=True))


def test_gradients_are_gone_after_the_step_and_the_schedule_moved_once():
    rates = []
    made = recipe(schedule=lambda step, steps: 1 / (step + 1), max_steps=10)
    with World() as world:
        step = Step(made, world)
        for _ in range(3):
            rates.append(step.optimizer.param_groups[0]["lr"])
            step([batch_of(4, 0), batch_of(4, 1)])
        assert all(parameter.grad is None for parameter in step.parameters)
    assert rates == pytest.approx([0.1, 0.05, 0.1 / 3])


def test_a_step_without_data_says_so():
    with World() as world, pytest.raises(RecipeError, match="the data ended"):
        Step(recipe(), world)([])


class ForwardsFirst(Step):
    """Another schedule of the same micro-batches: all forwards, then all backwards."""

    def forward_backward(self, batches):
        losses, counts = zip(*(self.loss_of(place, batch) for place, batch in enumerate(batches)), strict=True)
        divisor = counts[0] * len(counts)
        for loss in losses:
            (loss / divisor).backward()
        return Sums(sum(loss.detach() for loss in losses), sum(counts), divisor, last=None)


def test_another_schedule_of_the_micro_batches_makes_the_same_update():
    pieces = [batch_of(8, seed) for seed in range(4)]
    clipped = recipe(max_grad_norm=0.1, micro_batch_size=8, global_batch_tokens=32)
    made = []
    for kind in (Step, ForwardsFirst):
        with World() as world:
            step = kind(clipped, world)
            outcome = step(pieces)
            made.append([outcome.loss, outcome.grad_norm, outcome.count, *step.parameters])
    assert all(map(torch.equal, *made))


def test_the_step_carries_no_instrumentation():
    source = inspect.getsource(surefoot.step)
    for word in ("meter", "phase", "watch", "ledger", "time", "hook", "print"):
        assert not re.search(rf"\b{word}\b", source)


def test_a_skipped_step_does_not_move_the_schedule():
    made = recipe(precision="16-mixed", schedule=lambda step, steps: 1 / (step + 1), max_steps=10)
    with World() as world:
        step = Step(made, world)
        x, y, kept = batch_of(8, 0)
        step([(x, y * 1e4, kept)])  # finite, until the gradients are scaled
        assert step.scheduler.last_epoch == 0
        assert step.optimizer.param_groups[0]["lr"] == 0.1
        step([(x, y, kept)])
        assert step.scheduler.last_epoch == 1


def test_clipping_comes_after_unscaling():
    """The norm is that of the gradients, not of the scaled ones, and the update is as long as the clip allows."""
    pieces = [batch_of(8, seed) for seed in range(2)]
    norms = {}
    for precision in ("32-true", "16-mixed"):
        with World() as world:
            step = Step(recipe(precision=precision, max_grad_norm=1e-3), world)
            before = [parameter.detach().clone() for parameter in step.parameters]
            norms[precision] = step(pieces).grad_norm.item()
            moved = [now.detach() - then for now, then in zip(step.parameters, before, strict=True)]
            length = torch.linalg.vector_norm(torch.cat([each.flatten() for each in moved]))
            assert length == pytest.approx(0.1 * 1e-3, rel=1e-2)
    assert norms["16-mixed"] == pytest.approx(norms["32-true"], rel=0.01)
