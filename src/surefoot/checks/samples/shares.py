"""Finds each rank's share of a data set in one pass."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

from torch.utils.data import IterableDataset, Subset

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.types import AnyLoader
from surefoot.checks.samples.dataset_copies import copied, print_of
from surefoot.checks.samples.places import places_of
from surefoot.events.phases import Phases
from surefoot.randomness import kept, seed_all

MOST_PLACES = 20_000
"""If a pass reads more samples, only every second, third, ... index is recorded."""


@dataclass(frozen=True)
class Share:
    """The indices that one pass reads, and what identifies the data set: its size and three samples."""

    places: list[int]
    dataset: list[int]

    def told(self) -> dict[str, Any]:
        return asdict(self)


def share_of(loader: AnyLoader, phases: Phases) -> Share | None:
    """What a loader reads in one pass; None if that is unknown, or samples are drawn with replacement."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    with phases.deaf(), kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with attempt(f"reading {type(loader.dataset).__name__} again"):
            return _share(loader)
    return None


def _share(loader: AnyLoader) -> Share | None:
    dataset: Any = loader.dataset
    places = places_of(loader, dataset)
    if places is None or len(set(places)) < len(places):
        return None
    while isinstance(dataset, Subset):
        places, dataset = [int(dataset.indices[place]) for place in places], dataset.dataset
    size = len(dataset)
    reader: Any = copied(dataset)
    prints = []
    for place in (0, size // 2, size - 1):
        seed_all(0)  # so that ranks with random augmentation read the same
        prints.append(print_of(reader[place]))
    each = size // MOST_PLACES + 1
    return Share([place for place in places if place % each == 0], [size, *prints])
