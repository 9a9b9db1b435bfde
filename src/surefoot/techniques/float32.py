"""Float32: modules of a mixed precision that compute in float32, chosen by shell patterns over their names.

`float32="head, *.norm"` turns autocast off inside those modules and gives them their inputs in float32. What they
return stays in float32, as after any operator that autocast keeps there. Their parameters are in float32 anyway.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.mesh import Layout
from surefoot.trees import map_tensors, tensors_in

_KEPT: dict[type[nn.Module], type[nn.Module]] = {}
"""Classes of modules, each with the class of those that compute in float32."""


def apply(model: nn.Module, recipe: Recipe) -> None:
    """Makes the modules that the recipe names compute in float32. Raises if a pattern matches none."""
    if recipe.float32 is None:
        return
    named = {name: module for name, module in model.named_modules() if name}
    for pattern in _patterns(recipe):
        matched = [module for name, module in named.items() if fnmatchcase(name, pattern)]
        if not matched:
            known = ", ".join(list(named)[-5:])
            raise RecipeError(f"float32={pattern!r} matches no module of {recipe.name}; its modules are {known}, ...")
        for module in matched:
            if not _is_kept(module):
                module.__class__ = _kept(type(module))


def refuse_layout(recipe: Recipe, layout: Layout) -> None:
    """Raises if ranks split the model: FSDP chooses the format for whole groups of parameters."""
    if recipe.float32 is not None and (layout.shards or layout.tp > 1):
        raise RecipeError(
            "float32 names modules, and ranks that split the model compute all alike; use ddp, or one rank"
        )


def explain(model: nn.Module, recipe: Recipe) -> list[str]:
    """One sentence: how many modules compute in float32."""
    if recipe.float32 is None:
        return []
    kept = sum(map(_is_kept, model.modules()))
    of = len(list(model.modules()))
    return [f"float32={recipe.float32}: {kept} of {of} modules compute in float32"]


def _patterns(recipe: Recipe) -> list[str]:
    return str(recipe.float32).split(",")


def _is_kept(module: nn.Module) -> bool:
    return type(module) in _KEPT.values()


def _kept(kind: type[nn.Module]) -> type[nn.Module]:
    """The class of a module, with a forward in float32. A class, because copies of a model keep it."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        device = next((each.device.type for each in tensors_in((args, kwargs))), "cpu")
        with torch.autocast(device, enabled=False):
            return kind.forward(self, *map_tensors(_single, args), **map_tensors(_single, kwargs))

    if kind not in _KEPT:
        _KEPT[kind] = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return _KEPT[kind]


def _single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
