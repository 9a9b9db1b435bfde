"""Measures what an operator call adds to a step beyond its own time: rehearses a tiny step, then really runs it."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot.planning.fake_step import Tracing
from surefoot.planning.timing.rehearse import rehearse
from surefoot.recipe.build import build_model
from surefoot.recipe.recipe import Recipe
from surefoot.records.usage import Timed
from surefoot.techniques.clip import clip

BLOCKS, WIDTH = 16, 16
STEPS = 40


def call_seconds(*, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds per call, by phase: Python, autograd, modules and optimizer code, minus the cost of a rehearsed call."""
    recipe = _tiny()
    with Tracing(recipe, script=True) as tracing:
        traced = tracing.traced()
    timed = rehearse(traced.script, clock=clock)
    taken = _taken(recipe, clock)
    alone, calls = _by_phase(timed)
    return {phase: (taken[phase] - alone[phase]) / calls[phase] for phase in taken}


def _tiny() -> Recipe:
    """Blocks of the layers that most models use, so small that their work takes no time."""
    return Recipe(
        model=lambda: nn.Sequential(*(_Block() for _ in range(BLOCKS))),
        data=lambda: TensorDataset(torch.rand(8, WIDTH)),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=False),
        micro_batch_size=4,
        name="tiny",
    )


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.up(self.norm(x)).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
        return x + self.drop(self.down(nn.functional.gelu(inner)))


def _taken(recipe: Recipe, clock: Callable[[], float]) -> dict[str, float]:
    """The median seconds of each phase of real steps."""
    assert recipe.loss is not None
    model = build_model(recipe)
    parameters = list(model.parameters())
    optimizer, batch = recipe.optimizer(parameters), (torch.rand(4, WIDTH),)
    found: dict[str, list[float]] = {"forward": [], "backward": [], "update": []}
    for _ in range(STEPS):
        moments = [clock()]
        loss = recipe.loss(model, batch)
        moments.append(clock())
        loss.backward()  # type: ignore[union-attr]
        moments.append(clock())
        clip(parameters, None)
        optimizer.step()
        moments.append(clock())
        optimizer.zero_grad()
        for phase, began, ended in zip(found, moments, moments[1:], strict=False):
            found[phase].append(ended - began)
    return {phase: statistics.median(seconds[1:]) for phase, seconds in found.items()}


def _by_phase(timed: tuple[Timed, ...]) -> tuple[dict[str, float], Counter[str]]:
    """The rehearsed seconds and the number of calls of each phase. The loss counts as forward."""
    alone: dict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for each in timed:
        phase = "forward" if each.phase == "loss" else each.phase
        alone[phase] += each.calls * (each.seconds or 0.0)
        calls[phase] += each.calls
    return alone, calls
