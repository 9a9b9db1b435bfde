"""The trained model of a run, in evaluation mode."""

from __future__ import annotations

from pathlib import Path

import torch

from surefoot.exports.weights_file import load_weights
from surefoot.recipe.build import build_model
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.precision import parameters_in
from surefoot.world.world import World


def trained_model(recipe: Recipe, world: World, weights: Path) -> torch.nn.Module:
    """The recipe's model with the weights of a file, in the number format that the recipe trains."""
    with world.device, parameters_in(recipe.precision):
        model = build_model(recipe).eval()
    load_weights(model, weights, device=str(world.device))
    return model
