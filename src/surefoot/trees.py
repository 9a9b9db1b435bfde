"""Trees: the tensors in nested lists, tuples, dicts and data classes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from surefoot.torch_inside.sparse import LAYOUTS, parts_of


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors of a tree, in order."""
    found: list[torch.Tensor] = []
    _collect((tree,), found)
    return iter(found)


def _collect(items: Iterable[Any], found: list[torch.Tensor]) -> None:
    """Collects tensors with one call for each container, because it runs for every operator."""
    for item in items:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            _collect(item, found)
        elif isinstance(item, dict):
            _collect(item.values(), found)


def plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor itself, or the parts of a wrapper such as DTensor on this rank, or of a sparse tensor."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield from parts_of(tensor) if tensor.layout in LAYOUTS else (tensor,)
        return
    for part in (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]):
        if isinstance(part, torch.Tensor):
            yield from plain(part)


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """A tree of the same form with every tensor replaced and everything else kept."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return type(tree)({name: map_tensors(function, item) for name, item in tree.items()})
    if isinstance(tree, list | tuple):
        items = [map_tensors(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if hasattr(tree, "__dataclass_fields__") and not isinstance(tree, type):
        made = copy.copy(tree)
        for name in tree.__dataclass_fields__:
            object.__setattr__(made, name, map_tensors(function, getattr(tree, name)))
        return made
    return tree


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds, without the wrapper that FP8 puts around shards of weights."""
    from torch.distributed.tensor import DTensor  # here, because whoever has no ranks need not load it

    return next(plain(tensor.to_local())) if isinstance(tensor, DTensor) else tensor
