"""Loss and metrics of a step's model on held-out or test data, as numbers; random state stays as it was."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from surefoot.randomness import derive, kept, seed_all
from surefoot.step import Scores, Step
from surefoot.training.run_data import RunData


def scores_of(step: Step, data: RunData, test: str | None = None) -> dict[str, float]:
    """Loss and metrics on the held-out micro-batches, or on the test data of this name."""
    scores = score(step, data, test)
    loss = {} if scores.loss is None else {"loss": scores.loss.item()}
    return {**loss, **floats_of(scores.metrics)}


def score(step: Step, data: RunData, test: str | None = None, *, sums_in: torch.dtype = torch.float32) -> Scores:
    """The same draws and the same micro-batches each time."""
    with kept():
        seed_all(derive(step.recipe.seed, "evaluate"))
        batches, most = data.held_out_batches() if test is None else data.test_batches(test)
        return step.evaluate(batches, most=most, sums_in=sums_in)


def floats_of(metrics: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Metrics as plain numbers."""
    return {name: float(value) for name, value in metrics.items()}
