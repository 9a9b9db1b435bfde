"""Groups: which parameters get weight decay.

| `decay`    | the optimizer's own weight decay                    | no weight decay                                |
|------------|-----------------------------------------------------|------------------------------------------------|
| `all`      | every parameter                                     |                                                |
| `matrices` | all others: two or more dimensions; embeddings too, | fewer than two dimensions, a name that ends in |
|            | since one tied to the output is its matrix          | bias, or a module with norm in its class name  |

With `all` a recipe's optimizer gets a list of parameters, with `matrices` two parameter groups. Any torch optimizer
takes either.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from surefoot.recipe.recipe import Decay


def optimizer_groups(model: nn.Module, decay: Decay) -> list[Any]:
    """The argument of a recipe's optimizer: the trainable parameters, or two groups of them."""
    trained = [each for each in model.parameters() if each.requires_grad]
    if decay == "all":
        return trained
    spared = _spared(model)
    groups: list[dict[str, Any]] = [
        {"params": [each for each in trained if each not in spared]},
        {"params": [each for each in trained if each in spared], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


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
    return f"weight_decay={decay:g} on {count:,} parameters in {len(held)} tensors: {', '.join(kinds)}"
