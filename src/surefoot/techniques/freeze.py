"""Freeze: parameters that are not trained, chosen by shell patterns over their names.

`freeze="encoder.*, *.bias"` sets `requires_grad=False` before the optimizer is made. `*` also matches dots. A tied
parameter is frozen if one of its names matches.
"""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe


def apply(model: nn.Module, recipe: Recipe) -> None:
    """Freezes the parameters that the recipe names. Raises if a pattern matches none, or nothing is left to train."""
    if recipe.freeze is None:
        return
    named = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns_of(recipe):
        matched = [parameter for name, parameter in named.items() if fnmatchcase(name, pattern)]
        if not matched:
            raise RecipeError(f"freeze={pattern!r} matches no parameter of {recipe.name}; {_near(model, pattern)}")
        for parameter in matched:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in named.values()):
        raise RecipeError(
            f"freeze={recipe.freeze!r} freezes every parameter of {recipe.name}: nothing is left to train"
        )


def patterns_of(recipe: Recipe) -> list[str]:
    """The patterns of a recipe's `freeze`."""
    return [each.strip() for each in str(recipe.freeze or "").split(",") if each.strip()]


def explain(model: nn.Module, recipe: Recipe) -> list[str]:
    """One sentence: how many parameters are frozen."""
    if recipe.freeze is None:
        return []
    frozen = [parameter.numel() for parameter in model.parameters() if not parameter.requires_grad]
    whole = sum(parameter.numel() for parameter in model.parameters())
    share = f"{sum(frozen):,} of {whole:,} parameters, in {len(frozen)} tensors"
    return [f"freeze={recipe.freeze}: {share}, are frozen: they have no gradient and no optimizer state"]


def _near(model: nn.Module, pattern: str) -> str:
    """The names that may have been meant."""
    modules = [f"{name}.*" for name, module in model.named_modules() if name and any(True for _ in module.parameters())]
    known = [*modules, *(name for name, _ in model.named_parameters())]
    inside = [f"{pattern.rstrip('.*')}.*"] if f"{pattern.rstrip('.*')}.*" in modules else []
    near = list(dict.fromkeys([*inside, *get_close_matches(pattern, known, n=3, cutoff=0.5)]))
    return f"did you mean {', '.join(near)}?" if near else f"its parameters are {', '.join(known[-5:])}, ..."
