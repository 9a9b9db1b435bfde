"""Reads samples from copies of data sets, and hashes them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import xxhash
from torch.utils.data import Subset

from surefoot.checks.engine.types import AnyDataset
from surefoot.checks.samples.labels import parts
from surefoot.randomness import seed_all

MOST_BYTES = 1 << 26
"""A larger data set is not copied."""
_TIMES = 8
"""How often one sample is read."""
_SEEDS = 4
"""With this many seeds a sample is read from the changed and from the original data set."""


def print_of(sample: object) -> int:
    """A hash of a sample's values."""
    return hash(tuple(xxhash.xxh3_64_intdigest(np.ascontiguousarray(each).tobytes()) for each in parts(sample)))


def copied(dataset: AnyDataset) -> AnyDataset:
    """A copy to read from, so that the data set itself is not touched."""
    if sum(array.nbytes for _, array in _arrays(dataset)) > MOST_BYTES:
        raise ValueError("too large to copy")
    return copy.deepcopy(dataset)


def changed_by_reading(dataset: Any) -> str:
    """The attribute that reading a sample changes, if the sample is different afterwards.

    Caches, counters and buffers that are rewritten each time may change.
    """
    reader: Any = copied(dataset)
    before = {name: array.copy() for name, array in _arrays(reader)}
    for seed in range(_TIMES):
        seed_all(seed)  # some change a sample only sometimes
        reader[0]
        after = {name: array.copy() for name, array in _arrays(reader) if name in before}
        changed = [name for name in after if _differ(after[name], before[name])]
        if changed and any(_comes_out(dataset, each, {}) != _comes_out(dataset, each, after) for each in range(_SEEDS)):
            return changed[0]
    return ""


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and not np.array_equal(one, other)


def _comes_out(dataset: Any, seed: int, held: dict[str, np.ndarray]) -> int:
    """A hash of the first sample, read once from a copy of the data set with these arrays instead of its own."""
    reader: Any = copied(dataset)
    for name, array in _arrays(reader):
        if name in held and _differ(array, held[name]):
            array[...] = held[name]
    seed_all(seed)
    return print_of(reader[0])


def root(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _arrays(dataset: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays and tensors among a data set's attributes, and in lists of them."""
    for name, value in getattr(root(dataset), "__dict__", {}).items():
        yield from _arrays_in(name, value, deep=2)


def _arrays_in(name: str, value: object, *, deep: int) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, list | tuple | dict) and deep:
        items = value.items() if isinstance(value, dict) else enumerate(value[:4096])
        for key, each in items:
            yield from _arrays_in(f"{name}[{key}]", each, deep=deep - 1)
    elif isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
        plain = value.detach()
        yield name, plain.view(torch.uint8).numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
    elif isinstance(value, np.ndarray):
        yield name, value
