"""Epochs: how many steps they are, and how far the last step reaches beyond them."""

from __future__ import annotations

from surefoot.recipe.recipe import Recipe
from surefoot.units import counted


def explain(recipe: Recipe) -> list[str]:
    """One line if the recipe counts epochs."""
    steps = recipe.steps()
    if recipe.max_epochs is None or steps is None or not recipe.epoch_samples:
        return []
    taken = steps * recipe.samples_per_step
    over = max(0, round(taken - recipe.max_epochs * recipe.epoch_samples))
    more = f"; the last step takes {counted(over, 'sample')} more" if over else ""
    return [
        f"epochs: {taken / recipe.epoch_samples:.4g} of {counted(recipe.epoch_samples, 'sample')}, "
        f"{counted(steps, 'step')} of {recipe.samples_per_step:,}{more}"
    ]
