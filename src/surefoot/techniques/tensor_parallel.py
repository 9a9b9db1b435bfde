"""Tensor parallel: splits single layers over ranks that see the same data, as the recipe's `tensor_plan` says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatch

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.loss_parallel import split_head
from surefoot.techniques.mesh import TENSOR


@dataclass(frozen=True)
class Cutting:
    """The number of ranks that layers are split over, and the names of the split parameters."""

    ranks: int
    names: frozenset[str]

    def explain(self, model: nn.Module) -> list[str]:
        """One sentence: how much of the model is split."""
        sizes = {name: each.numel() for name, each in model.named_parameters()}
        share = sum(size for name, size in sizes.items() if name in self.names) / sum(sizes.values())
        return [f"tp={self.ranks}: {share:.1%} of all parameters are in layers that the recipe's tensor_plan splits"]


def apply(model: nn.Module, recipe: Recipe, mesh: DeviceMesh) -> Cutting:
    """Splits the layers that the plan names. Tied weights stay tied."""
    assert recipe.tensor_plan is not None
    tied = _tied(model)
    for pattern, style in split_head(model, recipe.tensor_plan(model), recipe).items():
        for module in _matching(model, pattern):
            parallelize_module(module, mesh[TENSOR], style)
    for names in tied:
        _tie(model, names)
    cut = (name for name, each in model.named_parameters() if isinstance(each, DTensor) and _is_cut(each))
    return Cutting(mesh[TENSOR].size(), frozenset(cut))


def _matching(model: nn.Module, pattern: str) -> list[nn.Module]:
    """The modules that a key of a plan names. torch 2.8 also takes `blocks.0` for `blocks.*.mlp.0`."""
    words = pattern.split(".")
    named = [(name.split("."), module) for name, module in model.named_modules(remove_duplicate=False)]
    found = [module for name, module in named if len(name) == len(words) and all(map(fnmatch, name, words))]
    if not found:
        raise RecipeError(f"tensor_plan splits {pattern!r}, and the model has no module of that name")
    return found


def _is_cut(parameter: DTensor) -> bool:
    names = parameter.device_mesh.mesh_dim_names or ()
    return TENSOR in names and not parameter.placements[names.index(TENSOR)].is_replicate()


def _tied(model: nn.Module) -> list[list[str]]:
    """The names of each parameter that has several."""
    names = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[parameter].append(name)
    return [each for each in names.values() if len(each) > 1]


def _tie(model: nn.Module, names: list[str]) -> None:
    first, *others = (model.get_parameter(name) for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if _placement(first) != _placement(other):
            raise RecipeError(
                f"tensor_plan splits {names[0]} as {_placement(first)} and {name}, which is tied to it, as "
                f"{_placement(other)}; split tied weights alike"
            )
        place, _, last = name.rpartition(".")
        setattr(model.get_submodule(place), last, first)


def _placement(parameter: nn.Parameter) -> str:
    return str(parameter.placements[0]) if isinstance(parameter, DTensor) else "not at all"
