"""Changes of batches: targets permuted, a part of an input shuffled, one sample disturbed."""

from __future__ import annotations

from typing import Any

import torch
import xxhash

from surefoot.debug.probe.leaves import Leaf, altered, leaves, rows_of, same, taken
from surefoot.debug.probe.order import Change, Roles
from surefoot.training.replay import bits_of
from surefoot.trees import tensors_in

FEWEST = 4
"""Of fewer samples a permutation changes little."""


def permutation(rows: int, seed: int) -> torch.Tensor:
    """A permutation that depends on its seed alone, and takes nothing from the script's random numbers."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(12345 + seed))


def changed_batches(batches: list[Any], change: Change, roles: dict[str, str]) -> tuple[list[Any], int]:
    """The batches of an evaluation with a change, and how many of them it really changed."""
    if change.kind == "targets":
        made = _targets_permuted(batches, change.seed, [path for path, role in roles.items() if role == "target"])
    elif change.kind == "part":
        made = [part_shuffled(each, change) for each in batches]
    elif change.kind == "sample":
        inputs = [path for path, role in roles.items() if role in ("input", "both")]
        made = [sample_disturbed(each, inputs) if not place else each for place, each in enumerate(batches)]
    else:
        made = batches
    return made, sum(not _same(one, other) for one, other in zip(batches, made, strict=True))


def _same(one: Any, other: Any) -> bool:
    ours, theirs = leaves(one), leaves(other)
    return all(same(ours[path], theirs[path]) for path in ours)


def _targets_permuted(batches: list[Any], seed: int, paths: list[str]) -> list[Any]:
    """Across all batches, where targets have one shape; within each batch otherwise."""
    columns = [[leaves(each).get(path) for each in batches] for path in paths]
    whole = all(_joins(column) for column in columns)
    sizes = [rows_of(leaf) for leaf in columns[0]] if columns and None not in columns[0] else []
    if not (whole and sizes and all([rows_of(leaf) for leaf in column] == sizes for column in columns)):
        return [targets_permuted(each, seed, paths) for each in batches]
    order = permutation(sum(sizes), seed)
    mixed = {path: taken(_joined(column), order) for path, column in zip(paths, columns, strict=True)}
    made, first = [], 0
    for batch, size in zip(batches, sizes, strict=True):
        part = {path: column[first : first + size] for path, column in mixed.items()}
        made.append(altered(batch, lambda path, leaf, part=part: part.get(path, leaf)))  # type: ignore[misc]
        first += size
    return made


def targets_permuted(batch: Any, seed: int, paths: list[str]) -> Any:
    """The batch with its targets given to other samples of it."""

    def alter(path: str, leaf: Leaf) -> Leaf:
        return taken(leaf, permutation(rows_of(leaf), seed)) if path in paths and rows_of(leaf) > 1 else leaf

    return altered(batch, alter)


def _joins(column: list[Any]) -> bool:
    """Can the leaves of all batches be put together: tensors with one form of row, or lists?"""
    if all(isinstance(each, list) for each in column):
        return True
    if not all(isinstance(each, torch.Tensor) and each.dim() for each in column):
        return False
    return len({(each.shape[1:], each.dtype) for each in column}) == 1


def _joined(column: list[Any]) -> Leaf:
    return torch.cat(column) if isinstance(column[0], torch.Tensor) else [each for leaf in column for each in leaf]


def part_shuffled(batch: Any, change: Change) -> Any:
    """The batch with a part of one leaf shuffled between samples: places `first` to `last` of a dimension."""

    def alter(path: str, leaf: Leaf) -> Leaf:
        if path != change.path or not isinstance(leaf, torch.Tensor) or rows_of(leaf) < 2:
            return leaf
        other = taken(leaf, permutation(rows_of(leaf), change.seed))
        if not change.dim:
            return other
        if leaf.dim() <= change.dim:
            return leaf
        made, at = leaf.clone(), (slice(None),) * change.dim + (slice(change.first, change.last),)
        made[at] = other[at]
        return made

    return altered(batch, alter)


def sample_disturbed(batch: Any, paths: list[str]) -> Any:
    """The batch with the first sample's inputs replaced by those of the second."""

    def alter(path: str, leaf: Leaf) -> Leaf:
        if path not in paths or rows_of(leaf) < FEWEST:
            return leaf
        if isinstance(leaf, list):
            return [leaf[1] if leaf[1].shape == leaf[0].shape else leaf[0], *leaf[1:]]
        made = leaf.clone()
        made[0] = leaf[1]
        return made

    return altered(batch, alter)


def hash_of(tree: Any) -> str:
    """A hash of all tensors in a tree."""
    return xxhash.xxh3_64_hexdigest(
        b"".join(bits_of(each.detach()).cpu().numpy().tobytes() for each in tensors_in(list(leaves(tree).values())))
    )


def with_targets_of(own: Any, other: Any, roles: Roles) -> tuple[Any, bool]:
    """A batch with the targets of another one; as it is if those have another shape. And whether it was changed."""
    theirs, paths = leaves(other), roles.named("loader", "target")
    ours = leaves(own)
    if not all(path in ours and path in theirs and _shape(ours[path]) == _shape(theirs[path]) for path in paths):
        return own, False
    return altered(own, lambda path, leaf: theirs[path] if path in paths else leaf), True


def _shape(leaf: Leaf) -> Any:
    return leaf.shape if isinstance(leaf, torch.Tensor) else len(leaf)
