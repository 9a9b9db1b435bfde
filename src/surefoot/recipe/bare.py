"""Makes a recipe from a bare module and one batch, to plan a model before you write a recipe for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.trees import map_tensors, tensors_in


class Rows(Dataset[Any]):
    """The samples of one batch."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(next(tensors_in(self.batch)))

    def __getitem__(self, index: int) -> Any:
        return map_tensors(lambda tensor: tensor[index], self.batch)


def recipe_of(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    batch: Any,
    *,
    loss: Callable[[torch.nn.Module, Any], Any] | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    **settings: Any,
) -> Recipe:
    """`recipe_of(lambda: MyModel(), batch)`. Samples lie along the first dimension of every tensor.

    A module that you have already built is copied, and stays as it is. A function that builds one can be planned
    without its memory.

    Without a loss, the model is called with the batch as its arguments (a dict by name), and the loss is the mean of
    all outputs. That is right for shapes, memory and FLOPs, not for learning. `settings` are fields of `Recipe`.
    """
    first = next(tensors_in(batch), None)
    if first is None or not first.dim():
        raise RecipeError(f"a batch needs tensors whose first dimension counts samples; this one is {_kind(batch)}")
    rows = Rows(batch)
    tokens = first[0].numel() if not first.dtype.is_floating_point else 1
    return Recipe(
        model=(lambda: copy.deepcopy(model)) if isinstance(model, torch.nn.Module) else model,
        data=lambda: rows,
        loss=loss or _mean_of_outputs,
        optimizer=optimizer,
        **{"micro_batch_size": len(rows), "tokens_per_sample": tokens, **settings},
    )


def _kind(batch: Any) -> str:
    return f"a tensor of shape {list(batch.shape)}" if isinstance(batch, torch.Tensor) else f"a {type(batch).__name__}"


def _mean_of_outputs(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    if isinstance(batch, dict):
        out = model(**batch)
    else:
        out = model(*batch) if isinstance(batch, list | tuple) else model(batch)
    floats = [each for each in tensors_in(out) if each.dtype.is_floating_point and each.requires_grad]
    return sum((each.float().mean() for each in floats), torch.zeros(()))
