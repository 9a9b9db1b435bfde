"""Leaves: the tensors of a batch by their path, and batches with some of them changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch

Leaf = Any
"""A tensor with one row per sample, or a list of one tensor per sample."""
Alter = Callable[[str, Leaf], Leaf]
FEWEST = 2
"""The samples of a batch that can be told from its fields."""


def leaves(batch: Any) -> dict[str, Leaf]:
    """Every leaf of a batch by its path, such as `[1]` or `['label']`; `[1][*]['boxes']` in a list of samples."""
    found: dict[str, Leaf] = {}

    def note(path: str, leaf: Leaf) -> Leaf:
        found[path] = leaf
        return leaf

    altered(batch, note)
    return found


def altered(batch: Any, alter: Alter) -> Any:
    """A batch of the same form, each leaf of it altered."""
    return _altered(batch, "", alter, samples_in(batch))


def samples_in(batch: Any) -> int:
    """The number of samples of a batch; 0 if it is not known."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 0
    fields = list(batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ())
    sizes = [samples_in(each) for each in fields if isinstance(each, torch.Tensor | Mapping)]
    lists = [len(each) for each in fields if isinstance(each, list | tuple)]
    return next((each for each in (*sizes, *lists) if each), 0)


def as_batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[Any, Any]:
    """The arguments of a call as a batch: by position, and by name."""
    return {**dict(enumerate(args)), **kwargs}


def as_call(batch: dict[Any, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The other way round."""
    named = {name: value for name, value in batch.items() if isinstance(name, str)}
    return tuple(value for name, value in batch.items() if name not in named), named


def rows_of(leaf: Leaf) -> int:
    """How many samples a leaf has; 0 if it has none."""
    if isinstance(leaf, torch.Tensor):
        return leaf.shape[0] if leaf.dim() else 0
    return len(leaf)


def taken(leaf: Leaf, order: torch.Tensor) -> Leaf:
    """The samples of a leaf in another order."""
    return leaf[order.to(leaf.device)] if isinstance(leaf, torch.Tensor) else [leaf[place] for place in order.tolist()]


def same(one: Leaf, other: Leaf) -> bool:
    """Do two leaves hold the same values?"""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.shape == other.shape and torch.equal(one, other)
    return len(one) == len(other) and all(map(same, one, other))


def _altered(node: Any, path: str, alter: Alter, samples: int) -> Any:
    if isinstance(node, torch.Tensor):
        return alter(path, node)
    if isinstance(node, MutableMapping):
        made = copy.copy(node)
        for name in list(node):
            made[name] = _altered(node[name], f"{path}[{name!r}]", alter, samples)
        return made
    if isinstance(node, list | tuple):
        if path and len(node) == samples >= FEWEST and _per_sample(node):
            return type(node)(_column(list(node), f"{path}[*]", alter))
        items = [_altered(each, f"{path}[{place}]", alter, samples) for place, each in enumerate(node)]
        return type(node)(*items) if hasattr(node, "_fields") else type(node)(items)
    return node


def _per_sample(items: Any) -> bool:
    """Does a list hold one thing per sample: tensors, or dicts of the same names?"""
    if all(isinstance(each, torch.Tensor) and each.dim() for each in items):
        return True
    return all(isinstance(each, dict) and each.keys() == items[0].keys() for each in items)


def _column(items: list[Any], path: str, alter: Alter) -> list[Any]:
    """A list of samples, altered field by field."""
    if isinstance(items[0], torch.Tensor):
        return list(alter(path, items))
    made = [dict(each) for each in items]
    for name in items[0]:
        if all(isinstance(each[name], torch.Tensor) for each in items):
            column = alter(f"{path}[{name!r}]", [each[name] for each in items])
            for sample, value in zip(made, column, strict=True):
                sample[name] = value
    return made
