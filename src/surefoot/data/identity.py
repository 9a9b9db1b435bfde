"""The identity of a data set: its own `identity()`, or else hashes of a few of its items, or of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import count
from typing import Any, cast

import xxhash
from torch.utils.data import DataLoader, Dataset, IterableDataset

from surefoot.data.content import content_hash
from surefoot.data.order import sample_ids
from surefoot.errors import RecipeError
from surefoot.randomness import derive, kept, seed_all
from surefoot.recipe.sources import has_state, is_source
from surefoot.records.data_identity import DataIdentity
from surefoot.world.child_processes import tied_to_this_process

ITEMS = 64
"""The most items that are read, each twice. Fewer, if they take longer than `SECONDS`."""
SECONDS = 0.5
_DRAW = 0
"""The seed of the order in which items are read. It is the same for every run, so that runs can be compared."""
MOST_HASHES = 8192
"""The most hashes that an identity lists. With more items, neighbours share a hash."""


def identity_of(
    dataset: Dataset[Any],
    *,
    seed: int = 0,
    workers: int = 0,
    items: int | None = None,
    whole: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> DataIdentity:
    """Reads `items` items of the data set; by default, as many as half a second allows; if `whole`, all of them.

    The random numbers of an item depend on `seed`. An item that changes when it is read again is not hashed.
    With `workers`, one worker process reads the data set, so that it opens no file in this process.
    """
    if hasattr(dataset, "identity"):
        return DataIdentity(str(dataset.identity()))
    name = _name(dataset)
    if whole and not _has_samples(dataset):
        raise RecipeError(f"data_identity='all' reads every sample of a data set, and this is {name}; use 'sample'")
    if has_state(dataset):
        return DataIdentity(name)  # reading some would change it
    most = len(cast(Sized, dataset)) if whole else items or ITEMS
    hasher, began, read, unstable = xxhash.xxh3_64(), clock(), 0, 0
    group, groups = -(-most // MOST_HASHES) or 1, dict[int, Any]()
    reader: DataLoader[tuple[int, int, int]] = DataLoader(
        _Hashes(dataset, seed, most, whole=whole),
        batch_size=None,
        num_workers=min(workers, 1),
        worker_init_fn=tied_to_this_process(),
    )
    for number, first, second in reader:
        text = str(first).encode() if first == second else b"changes"
        hasher.update(text)
        groups.setdefault(number - read % group, xxhash.xxh32()).update(text)
        read, unstable = read + 1, unstable + (first != second)
        if items is None and not whole and clock() - began > SECONDS:
            break
    hashes = " ".join(f"{number}:{each.hexdigest()}" for number, each in groups.items())
    return DataIdentity(name, read, hasher.hexdigest(), unstable, hashes, group) if read else DataIdentity(name)


def _name(dataset: Dataset[Any]) -> str:
    if has_state(dataset):
        return "micro-batches of an object with a state"
    if is_source(dataset):
        return "micro-batches of a function"
    return "a stream" if isinstance(dataset, IterableDataset) else f"{len(cast(Sized, dataset)):,} samples"


def _has_samples(dataset: Dataset[Any]) -> bool:
    return not (has_state(dataset) or is_source(dataset) or isinstance(dataset, IterableDataset))


class _Hashes(IterableDataset[tuple[int, int, int]]):
    """The number of each selected item, and its hash twice. For a stream, these are its first items."""

    def __init__(self, dataset: Dataset[Any], seed: int, items: int, *, whole: bool) -> None:
        self.dataset, self.seed, self.items, self.whole = dataset, seed, items, whole

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        with kept(devices=()):
            yield from self._of_stream() if isinstance(self.dataset, IterableDataset) else self._of_items()

    def _of_items(self) -> Iterator[tuple[int, int, int]]:
        numbers: Iterable[int] = range(self.items)
        if not (self.whole or is_source(self.dataset)):
            length = len(cast(Sized, self.dataset))
            numbers = sample_ids(length, _DRAW, 0, min(self.items, length)).tolist()
        for number in numbers:
            yield number, self._hash(number), self._hash(number)

    def _hash(self, number: int) -> int:
        seed_all(derive(self.seed, "identity", number))
        source = cast(Any, self.dataset)
        return content_hash(source.batch(number, 1) if is_source(source) else source[number])

    def _of_stream(self) -> Iterator[tuple[int, int, int]]:
        """Opens a stream twice. A stream that can be read only once is skipped: training needs its items."""
        stream = cast(Any, self.dataset)
        if iter(stream) is not iter(stream):
            yield from zip(count(), self._first(stream), self._first(stream), strict=False)

    def _first(self, stream: Any) -> list[int]:
        seed_all(derive(self.seed, "identity"))
        return [content_hash(item) for item, _ in zip(stream, range(self.items), strict=False)]
