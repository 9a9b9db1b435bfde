"""Groups: which parameters get weight decay, and which another learning rate.

| `decay`    | the optimizer's own weight decay                    | no weight decay                                |
|------------|-----------------------------------------------------|------------------------------------------------|
| `all`      | every parameter                                     |                                                |
| `matrices` | all others: two or more dimensions; embeddings too, | fewer than two dimensions, a name that ends in |
|            | since one tied to the output is its matrix          | bias, or a module with norm in its class name  |

With `all` a recipe's optimizer gets a list of parameters, with `matrices` two parameter groups. Any torch optimizer
takes either. `rates="head.*=10"` makes a group whose learning rate is ten times that of the optimizer.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.units import first_of

SHARE = "share_of_rate"
"""The key of a group whose learning rate is a share of the optimizer's."""


def optimizer_of(model: nn.Module, recipe: Recipe) -> Any:
    """The recipe's optimizer, with a group of parameters for each share of its rate and of its decay."""
    made = recipe.optimizer(optimizer_groups(model, recipe))
    for group in getattr(made, "param_groups", ()):
        group["lr"] = group["lr"] * group.get(SHARE, 1.0)
    return made


def optimizer_groups(model: nn.Module, recipe: Recipe) -> list[Any]:
    """The trainable parameters if all are alike, or groups of them."""
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if recipe.decay == "all" and recipe.rates is None:
        return list(trained.values())
    spared = _spared(model) if recipe.decay == "matrices" else set()
    shares = _shares(list(trained), recipe)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, False): [], (1.0, True): []}
    for name, each in trained.items():
        groups.setdefault((shares[name], each in spared), []).append(each)
    return [
        {"params": held}
        | ({"weight_decay": 0.0} if is_spared else {})
        | ({SHARE: share} if recipe.rates is not None else {})
        for (share, is_spared), held in groups.items()
        if held
    ]


def _shares(names: list[str], recipe: Recipe) -> dict[str, float]:
    """The share of the learning rate of each parameter. Raises if a pattern matches none."""
    pairs = [part.rpartition("=") for part in str(recipe.rates or "").split(",") if part]
    for pattern, _, share in pairs:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise RecipeError(
                f"rates={pattern}={share} matches no trained parameter of {recipe.name}; they are {first_of(names, 5)}"
            )
    found = {name: next((share for pattern, _, share in pairs if fnmatchcase(name, pattern)), 1.0) for name in names}
    return {name: float(share) for name, share in found.items()}


def _spared(model: nn.Module) -> set[nn.Parameter]:
    """The parameters without weight decay."""
    return {
        parameter
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() < 2 or name.endswith("bias") or "norm" in type(module).__name__.lower()
    }


def explain(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """One line per group if there are several: its decay, its size, its parameters without layer numbers."""
    if len(optimizer.param_groups) == 1:
        return []
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [_line(group, names) for group in optimizer.param_groups]


def _line(group: dict[str, Any], names: dict[nn.Parameter, str]) -> str:
    held = group["params"]
    kinds = dict.fromkeys(re.sub(r"\b\d+\b", "*", names.get(each, "outside the model")) for each in held)
    decay = group.get("weight_decay", 0)
    count = sum(each.numel() for each in held)
    rate = f"{group[SHARE]:g} times the learning rate, " if group.get(SHARE, 1.0) != 1.0 else ""
    return f"{rate}weight_decay={decay:g} on {count:,} parameters in {len(held)} tensors: {', '.join(kinds)}"
