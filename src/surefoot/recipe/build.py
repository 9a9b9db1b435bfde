"""Builds the model and the data of a recipe, each with its own seed, so that a resumed run gets the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surefoot.errors import RecipeError
from surefoot.randomness import seed_all
from surefoot.recipe.first_data import samples_of_epoch, seeded, training_data
from surefoot.recipe.returned import checked_data, checked_model

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from surefoot.recipe.recipe import Recipe


def build_model(recipe: Recipe) -> nn.Module:
    """The recipe's model. It leaves the random generators as the model left them."""
    seed_all(recipe.seed_of_init)
    model = checked_model(recipe.model(), recipe.name)
    return model if recipe.adapt is None else checked_model(recipe.adapt(model), recipe.name, "adapt()")


def build_data(recipe: Recipe) -> Dataset[Any]:
    """The recipe's training data."""
    return training_data(recipe.data, recipe.seed_of_data, recipe.name)


def with_epoch(recipe: Recipe, data: Any = None) -> Recipe:
    """The recipe with the number of samples of an epoch, if it ends after epochs. `data` saves building it again."""
    if recipe.max_epochs is None or recipe.epoch_samples is not None:
        return recipe
    data = build_data(recipe) if data is None else data
    return replace(recipe, epoch_samples=samples_of_epoch(data, recipe.max_epochs))


def build_evaluation(recipe: Recipe) -> Dataset[Any]:
    """The recipe's held-out data."""
    if recipe.evaluation is None:
        raise RecipeError(f"{recipe.name} has no evaluation data")
    with seeded(recipe.seed_of_data, "evaluation"):
        return checked_data(recipe.evaluation(), f"{recipe.name}: evaluation()", recipe.evaluation)


def build_test(recipe: Recipe, name: str) -> Dataset[Any]:
    """The recipe's test data of this name."""
    with seeded(recipe.seed_of_data, f"test {name}"):
        made = recipe.tests()[name]
        return checked_data(made(), f"{recipe.name}: test data {name!r}", made)
