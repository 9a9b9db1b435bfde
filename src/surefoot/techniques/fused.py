"""Fused: asks the recipe's optimizer for torch's fused kernels, or for none.

torch updates lists of tensors operator by operator, with temporary lists as large as the parameters. Its fused kernels
update each list in one pass without them.
"""

from __future__ import annotations

from torch.optim import Optimizer

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe


def apply(optimizer: Optimizer, recipe: Recipe) -> Optimizer:
    """Sets `fused` in every group of the optimizer, if the recipe says so."""
    if recipe.fused is None:
        return optimizer
    if "fused" not in optimizer.defaults:
        raise RecipeError(f"fused={recipe.fused}: {type(optimizer).__name__} has no fused kernels; remove it")
    for group in (optimizer.defaults, *optimizer.param_groups):
        group["fused"] = recipe.fused
        if recipe.fused and group.get("foreach"):
            group["foreach"] = False
    return optimizer
