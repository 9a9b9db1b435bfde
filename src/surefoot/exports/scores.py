"""The recipe's loss and metrics on data, over each sample once, with sums in float64."""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import replace
from typing import cast

import torch

from surefoot.data.batches import has_samples
from surefoot.recipe.build import build_evaluation, build_test
from surefoot.recipe.recipe import Recipe
from surefoot.records.evaluation import Score
from surefoot.step import Scores, Step
from surefoot.training.run_data import RunData
from surefoot.training.scoring import floats_of, score
from surefoot.units import bits_per_byte


def scores_on(step: Step, recipe: Recipe, test: str | None) -> tuple[int | None, Scores]:
    """How many samples there are, and how the model did on them."""
    dataset = build_evaluation(step.recipe) if test is None else build_test(recipe, test)
    count = len(cast(Sized, dataset)) if has_samples(dataset) else None
    data = RunData(step)
    if count is not None:
        data.recipe = replace(step.recipe, evaluation_batches=None)
    return count, score(step, data, test, sums_in=torch.float64)


def score_of(recipe: Recipe, name: str, samples: int | None, scores: Scores) -> Score:
    """The figures of one data set, as a record."""
    loss = None if scores.loss is None else scores.loss.item()
    per_token = loss if recipe.unit == "token" else None
    return Score(
        data=name,
        samples=samples,
        loss=loss,
        perplexity=None if per_token is None else _power(per_token),
        bits_per_byte=None
        if per_token is None or recipe.bytes_per_token is None
        else bits_per_byte(per_token, recipe.bytes_per_token),
        metrics=floats_of(scores.metrics),
    )


def _power(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
