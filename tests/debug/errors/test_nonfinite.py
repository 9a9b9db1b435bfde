"""The first number that is not finite is traced to a module, a micro-batch and its samples."""

import dataclasses

import pytest
import torch
from torch import nn

from surefoot.debug.errors.nonfinite import first_nonfinite
from surefoot.step import Step
from surefoot.world.world import World


class Breaks(nn.Module):
    """Passes its input on, until a sample says 3."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (x == 3).any():
            return x
        return {"forward": x * float("inf"), "backward": torch.sqrt(x - x.detach())}.get(self.how, x)


def broken_step(small_recipe, how: str) -> Step:
    recipe = small_recipe("cruncher")
    model = lambda: nn.Sequential(nn.Identity(), Breaks(how), nn.Linear(4, 4))  # noqa: E731
    lose = float("nan") if how == "loss" else 1.0

    def loss(model, batch):
        return (model(batch.requires_grad_()) * lose).sum(), 1

    return Step(dataclasses.replace(recipe, model=model, loss=loss), World())


def batches():
    fine, bad = torch.ones(2, 4), torch.ones(2, 4)
    bad[1] = 3
    return [([10, 11], fine), ([12, 13], bad)]


@pytest.mark.parametrize(
    ("how", "seen", "where"),
    [
        ("forward", "`1` (Breaks) is the first module whose result is not finite.", "micro-batch 2, samples 12, 13"),
        ("backward", "The gradient that reaches the result of `0` (Identity)", "micro-batch 2, samples 12, 13"),
        ("loss", "comes from the loss function", "micro-batch 1, samples 10, 11"),
    ],
)
def test_the_place_is_named(small_recipe, how: str, seen: str, where: str):
    finding = first_nonfinite(broken_step(small_recipe, how), batches())
    assert seen in finding.seen
    assert finding.where == f"step 1, {where}"


def test_a_batch_that_holds_nan_is_to_blame_itself(small_recipe):
    spoilt = [([5], torch.full((1, 4), float("nan")))]
    assert "The batch itself" in first_nonfinite(broken_step(small_recipe, "no"), spoilt).seen


def test_a_finite_step_has_no_finding(small_recipe):
    assert first_nonfinite(broken_step(small_recipe, "no"), batches()) is None
