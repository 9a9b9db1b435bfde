"""Writes the int8 weights of a trained model, reads them back, and measures what they cost on held-out data."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import RunError
from surefoot.exports.as_model import with_weights
from surefoot.exports.example_call import Call
from surefoot.exports.outputs import difference
from surefoot.exports.quantize import quantize, stored
from surefoot.exports.scores import score_of, scores_on
from surefoot.exports.trained import trained_model
from surefoot.recipe.recipe import Recipe
from surefoot.records.evaluation import Score
from surefoot.records.export import Quantised
from surefoot.step import Step
from surefoot.techniques.adapters import parameter_count
from surefoot.training.weights import write_weights
from surefoot.world.world import World


@dataclass(frozen=True)
class Trained:
    """A trained model, the file of its weights, and one call of one of its networks."""

    recipe: Recipe
    whole: torch.nn.Module
    weights: Path
    call: Call
    output: Any


def write_quantised(trained: Trained, kind: str, folder: Path, world: World, network: Any) -> Quantised:
    """Writes `model.KIND.safetensors`. `network` is a function from a whole model to the network that is called."""
    small = copy.deepcopy(trained.whole)
    names = quantize(small, kind)
    if not names:
        raise RunError(
            f"{trained.recipe.name} has no weight that can become int8: it must be of a torch.nn.Linear, and no other "
            "layer may share it; leave out --quantize"
        )
    file = folder / f"model.{kind}.safetensors"
    found = write_weights(file, stored(small), quantization=kind)
    again = trained_model(trained.recipe, world, file)
    output = trained.call.of(network(again))
    state = trained.whole.state_dict()
    made = Quantised(
        kind=kind,
        path=str(file),
        bytes=os.path.getsize(file),
        digest=found.xxh3_128,
        layers=len(names),
        parameters=sum(state[name].numel() for name in names),
        of_parameters=parameter_count(trained.whole),
        file_difference=difference(trained.call.of(network(small)), output),
        output_difference=difference(trained.output, output),
    )
    del small, again
    before = _score(trained.recipe, trained.weights, world)
    after = _score(trained.recipe, file, world)
    if before is None or after is None:
        return made
    return replace(made, data=before.data, samples=before.samples, before=before.figures, after=after.figures)


def _score(recipe: Recipe, file: Path, world: World) -> Score | None:
    """On the held-out data, or else on the first test data. None if the recipe has neither."""
    tests = list(recipe.tests())
    if recipe.evaluation is None and not tests:
        return None
    step = Step(with_weights(replace(recipe, global_batch_tokens=None), file), world)
    test = None if recipe.evaluation is not None else tests[0]
    return score_of(recipe, test or "evaluation", *scores_on(step, recipe, test))
