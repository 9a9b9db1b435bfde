"""Samples that cannot be joined into a batch: which entry differs, and the lines of the data set that make it."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.debug.errors.origins import Origins
from surefoot.debug.errors.stack import Spot
from surefoot.records.explanation import Met

_JOINING = ("default_collate", "collate")


def uneven_samples(message: str, stack: list[Spot], origins: Origins, *, in_worker: bool) -> tuple[Met, ...]:
    """The samples that were being joined, if that failed because their sizes differ."""
    if "stack expects each tensor to be equal size" not in message:
        return ()
    joined = next((each for each in stack if each.name in _JOINING), None)
    if joined is None and not in_worker:
        return ()
    samples = joined.names.get("batch") if joined is not None else None
    keys = _differing(samples) if isinstance(samples, list) else ()
    if isinstance(samples, list) and keys is not None:
        shapes = tuple(tuple(_at(each, keys).shape) for each in samples)
    else:
        keys, shapes = (), ()
    entry = "".join(f"[{key!r}]" for key in keys)
    return (Met(f"sample{entry}", "sample", "list", shapes=shapes[:8], made=origins.of_samples(keys)),)


def _differing(samples: list[Any], keys: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """The way to the entry of the samples that has different sizes."""
    first = _at(samples[0], keys)
    if isinstance(first, torch.Tensor):
        return keys if len({tuple(_at(each, keys).shape) for each in samples}) > 1 else None
    inner = list(first) if isinstance(first, dict) else range(len(first)) if isinstance(first, tuple | list) else ()
    return next((found for key in inner if (found := _differing(samples, (*keys, key))) is not None), None)


def _at(sample: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        sample = sample[key]
    return sample
