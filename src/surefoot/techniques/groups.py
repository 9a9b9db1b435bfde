"""Groups: which parameters an optimizer decays.

| `decay`    | with the optimizer's own weight decay               | with none                                      |
|------------|-----------------------------------------------------|------------------------------------------------|
| `all`      | every parameter                                     |                                                |
| `matrices` | all others: of two or more dimensions, embeddings   | of one dimension or none, named bias, or of a  |
|            | too, since one tied to the output is its matrix     | module whose class is called a norm            |

With `all` a recipe's optimizer is given a list of parameters, with `matrices` two groups of torch's kind: any
optimizer of torch takes either.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from surefoot.recipe.recipe import Decay


def optimizer_groups(model: nn.Module, decay: Decay) -> list[Any]:
    """What a recipe's optimizer is given: the parameters that are trained, or two groups of them."""
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
    """The parameters that are not decayed."""
    return {
        parameter
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() < 2 or name.endswith("bias") or "norm" in type(module).__name__.lower()
    }


def explain(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """A line for each group, if there are several: its decay, how much it holds, and what, layers' numbers left out."""
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
