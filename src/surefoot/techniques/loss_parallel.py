"""Loss parallel: with tensor parallelism, each rank keeps the logits of its part of the vocabulary, and ranks exchange
only the sums of the cross-entropy.

The recipe's `tensor_plan` splits the head by columns; without this, every rank gathers all logits. It is torch's
`loss_parallel`. The loss and the gradients differ from those of gathered logits by the order of sums alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, loss_parallel

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.loss_chunks import head_of


def split_head(model: nn.Module, plan: Mapping[str, ParallelStyle], recipe: Recipe) -> dict[str, ParallelStyle]:
    """The recipe's plan, with a head whose logits stay split."""
    if not recipe.loss_parallel:
        return dict(plan)
    name, _ = head_of(model)
    style = plan.get(name)
    if not isinstance(style, ColwiseParallel):
        raise RecipeError(f"loss_parallel needs a tensor_plan that splits {name} by columns; this one does not")
    given = style.input_layouts[0] if style.input_layouts else Replicate()
    split = ColwiseParallel(input_layouts=given, output_layouts=Shard(-1), use_local_output=False)
    return {**plan, name: split}


def around(recipe: Recipe) -> AbstractContextManager[Any]:
    """The context for the loss and its backward."""
    return loss_parallel() if recipe.loss_parallel and recipe.tp > 1 else nullcontext()


def whole(loss: Any) -> Any:
    """The loss as an ordinary tensor. Every rank of a tensor-parallel group has the same."""
    if isinstance(loss, tuple):
        return (whole(loss[0]), *loss[1:])
    return loss.full_tensor() if isinstance(loss, DTensor) else loss
