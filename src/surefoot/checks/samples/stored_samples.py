"""Compares samples as data sets store them, before augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from surefoot.checks.samples.dataset_copies import print_of

_MOST = 16384
_FEWEST = 16
_FEWEST_VALUES = 4
"""Samples with fewer values repeat by chance; so do maps of fewer different values, such as a mask."""
_STORES = (torch.Tensor, np.ndarray, list, tuple, Subset)
_LONG = 40
"""Texts with fewer letters also repeat by chance, unless they are file names."""


def shared_rows(training: Any, evaluation: Any) -> float:
    """The share of stored evaluation samples that the training data set also stores."""
    ours, theirs = (dict(_kept(each)) for each in (training, evaluation))
    if type(_whole(training)) is not type(_whole(evaluation)):
        return 0.0
    shares = [_share(ours[name], theirs[name]) for name in theirs.keys() & ours.keys()]
    return max(shares, default=0.0)


def _share(ours: list[int], theirs: list[int]) -> float:
    if len(theirs) < _FEWEST or any(len(set(each)) < 0.9 * len(each) for each in (ours, theirs)):
        return 0.0
    return len(set(theirs).intersection(ours)) / len(set(theirs))


def _whole(dataset: Any) -> Any:
    return dataset.dataset if isinstance(dataset, Subset) else dataset


def _kept(dataset: Any) -> Iterator[tuple[str, list[int]]]:
    """By attribute, hashes of the values that a data set stores, one for each sample."""
    whole = _whole(dataset)
    places = range(len(whole)) if whole is dataset else dataset.indices
    for name, value in getattr(whole, "__dict__", {}).items():
        fits = isinstance(value, _STORES) and len(value) == len(whole) <= _MOST
        if isinstance(value, Subset) and fits:  # behind a wrapper that transforms samples
            yield name, [hash((id(value.dataset), int(value.indices[place]))) for place in places]
        elif fits and all(_tells(value[place]) for place in places):
            yield name, [print_of(value[place]) for place in places]


def _tells(value: object) -> bool:
    """Does this identify a sample: enough numbers, or a long text or file name, alone or as part of a pair?"""
    if isinstance(value, tuple | list):
        return any(map(_tells, value))
    if isinstance(value, str | Path):
        return len(str(value)) >= _LONG or bool(Path(value).suffix)
    if isinstance(value, torch.Tensor | np.ndarray):
        fractional = value.is_floating_point() if isinstance(value, torch.Tensor) else value.dtype.kind == "f"
        enough = int(np.prod(value.shape)) >= (_FEWEST_VALUES if fractional else 16 * _FEWEST_VALUES)
        return enough and len(np.unique(np.asarray(value))) >= min(_FEWEST_VALUES, int(np.prod(value.shape)))
    return False
