"""The identity of a data set: its own `identity()`, or else a hash of a few of its items, always the same ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized
from typing import Any, cast

import xxhash
from torch.utils.data import DataLoader, Dataset, IterableDataset

from surefoot.data.content import content_hash
from surefoot.data.order import sample_ids
from surefoot.randomness import derive, kept, seed_all
from surefoot.recipe.sources import has_state, is_source
from surefoot.records.data_identity import DataIdentity
from surefoot.world.child_processes import tied_to_this_process

ITEMS = 64
"""The most items that are read, each twice. Fewer, if they take longer than `SECONDS`."""
SECONDS = 0.5
_DRAW = 0
"""The seed that selects the items. It is the same for every run, so that runs can be compared."""


def identity_of(
    dataset: Dataset[Any],
    *,
    seed: int = 0,
    workers: int = 0,
    items: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> DataIdentity:
    """Reads `items` items of the data set; by default, as many as half a second allows.

    The random numbers of an item depend on `seed`. An item that changes when it is read again is not hashed.
    With `workers`, one worker process reads the data set, so that it opens no file in this process.
    """
    if hasattr(dataset, "identity"):
        return DataIdentity(str(dataset.identity()))
    if has_state(dataset):
        return DataIdentity("micro-batches of an object with a state")  # reading some would change it
    if is_source(dataset):
        name = "micro-batches of a function"
    else:
        name = "a stream" if isinstance(dataset, IterableDataset) else f"{len(cast(Sized, dataset)):,} samples"
    hasher, began, read, unstable = xxhash.xxh3_64(), clock(), 0, 0
    reader: DataLoader[tuple[int, int]] = DataLoader(
        _Hashes(dataset, seed, items or ITEMS),
        batch_size=None,
        num_workers=min(workers, 1),
        worker_init_fn=tied_to_this_process(),
    )
    for first, second in reader:
        read, unstable = read + 1, unstable + (first != second)
        hasher.update(str(first).encode() if first == second else b"changes")
        if items is None and clock() - began > SECONDS:
            break
    return DataIdentity(name, read, hasher.hexdigest(), unstable) if read else DataIdentity(name)


class _Hashes(IterableDataset[tuple[int, int]]):
    """Hashes each selected item twice. For a stream, these are its first items."""

    def __init__(self, dataset: Dataset[Any], seed: int, items: int) -> None:
        self.dataset, self.seed, self.items = dataset, seed, items

    def __iter__(self) -> Iterator[tuple[int, int]]:
        with kept(devices=()):
            yield from self._of_stream() if isinstance(self.dataset, IterableDataset) else self._of_items()

    def _of_items(self) -> Iterator[tuple[int, int]]:
        if is_source(self.dataset):
            yield from ((self._hash(number), self._hash(number)) for number in range(self.items))
            return
        length = len(cast(Sized, self.dataset))
        for number in sample_ids(length, _DRAW, 0, min(self.items, length)).tolist():
            yield self._hash(number), self._hash(number)

    def _hash(self, number: int) -> int:
        seed_all(derive(self.seed, "identity", number))
        source = cast(Any, self.dataset)
        return content_hash(source.batch(number, 1) if is_source(source) else source[number])

    def _of_stream(self) -> Iterator[tuple[int, int]]:
        """Opens a stream twice. A stream that can be read only once is skipped: training needs its items."""
        stream = cast(Any, self.dataset)
        if iter(stream) is not iter(stream):
            yield from zip(self._first(stream), self._first(stream), strict=False)

    def _first(self, stream: Any) -> list[int]:
        seed_all(derive(self.seed, "identity"))
        return [content_hash(item) for item, _ in zip(stream, range(self.items), strict=False)]
