"""Micro-batches of a data set: their samples depend only on the seed and the step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from surefoot.data.content import content_hash
from surefoot.data.order import sample_ids
from surefoot.data.prefetch import Ahead
from surefoot.errors import RecipeError
from surefoot.randomness import Stream, derive, kept, seed_all
from surefoot.recipe.build import build_data
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.sources import PUT_BACK, has_state, is_source
from surefoot.trees import map_tensors
from surefoot.world.child_processes import tied_to_this_process

if TYPE_CHECKING:
    from typing_extensions import Self

Collate = Callable[[list[Any]], Any]
LOOK_AHEAD = 8
"""How many micro-batches ahead the kernel is asked to read pages."""


class Batches(Iterator[Any]):
    """An endless iterator over micro-batches.

    `taken` holds the sample numbers since `begin_step`. If `hashed` is set, `hashes` holds the hash of each
    micro-batch. If they are `pinned`, a copy to a GPU need not be waited for.
    """

    def __init__(
        self,
        numbered: Iterator[tuple[list[int], Any]],
        dataset: Dataset[Any] | None = None,
        *,
        pinned: bool = False,
    ) -> None:
        self._numbered, self.dataset, self.hashed, self.pinned = numbered, dataset, False, pinned
        self.begin_step()

    def begin_step(self) -> None:
        """Starts a new step: clears `taken` and `hashes`."""
        self.taken, self.hashes = list[int](), list[int]()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        numbers, batch = next(self._numbered)
        self.taken += numbers
        if self.hashed:
            self.hashes.append(content_hash(batch))
        return batch

    def close(self) -> None:
        """Stops the thread or the worker processes that prepare batches."""
        if isinstance(self._numbered, Ahead):
            self._numbered.close()
        self._numbered = iter(())


def batches_of(recipe: Recipe, *, first_step: int = 0, ahead: bool = False, rank: int = 0, ranks: int = 1) -> Batches:
    """The micro-batches of one rank, from `first_step` on.

    With `ahead`, they are prepared before they are needed: by the recipe's worker processes, or by one
    thread if the data set declares that it draws no random numbers.
    """
    return micro_batches(
        build_data(recipe),
        size=recipe.micro_batch_size,
        seed=recipe.seed_of_data,
        first=first_step * recipe.micro_batches(ranks),
        rank=rank,
        ranks=ranks,
        collate=recipe.collate,
        workers=recipe.loaders if ahead else 0,
        ahead=ahead,
        pinned=ahead and recipe.pin_memory and torch.accelerator.is_available(),
    )


def micro_batches(
    dataset: Dataset[Any],
    *,
    size: int,
    seed: int,
    first: int = 0,
    rank: int = 0,
    ranks: int = 1,
    collate: Collate | None = None,
    workers: int = 0,
    ahead: bool = False,
    once: bool = False,
    pinned: bool = False,
) -> Batches:
    """Endless micro-batches of `size` samples, from the rank's `first` one on.

    With `once`, one epoch: its last micro-batch has the samples that are left. Ranks get equally many; one that has
    no samples left gets one again. With `pinned`, they are in pinned memory.

    Every sample comes once per epoch. The order and each sample's random numbers do not depend on the ranks, the
    micro-batch size, the workers or the first batch. The random numbers of `collate` depend on the seed and the
    batch's first sample. Nothing is drawn from the global generators.

    A source makes each micro-batch itself, from its number over all ranks and the size.
    """
    if once and not has_samples(dataset):
        raise RecipeError(
            "a stream has no end, so it cannot be evaluated whole; set evaluation_batches; test data needs a length"
        )
    if is_source(dataset):
        _refuse_what_samples_need(collate, workers)
        made = _made(dataset, size=size, seed=seed, first=first * ranks + rank, stride=ranks)
        return Batches(_pinned(made) if pinned else made, dataset, pinned=pinned)
    if isinstance(dataset, IterableDataset):
        join_stream = collate or default_collate
        stream = _streamed(dataset, size=size, seed=seed, collate=join_stream, workers=workers, pinned=pinned)
        return Batches(_every(stream, first * ranks + rank, ranks), dataset, pinned=pinned)
    samples = len(cast(Sized, dataset))
    if samples == 0:
        raise RecipeError("the data set is empty")
    order = _Places(samples, seed, size, first=first, rank=rank, ranks=ranks)
    places, join = _OneEpoch(order) if once else order, _Join(collate, seed)
    if not _draws(dataset) and hasattr(dataset, "__getitems__") and workers == 0:
        ahead = ahead and collate is None  # generators are global: no other thread may draw from them
        gathered = _gathered(dataset, iter(places), join, look=LOOK_AHEAD if ahead else 0)
        if pinned:
            gathered = _pinned(gathered)
        return Batches(Ahead(gathered) if ahead else gathered, dataset, pinned=pinned)
    loader = DataLoader(
        cast(Any, _Seeded(dataset, seed)),
        batch_sampler=cast(Any, places),
        collate_fn=join,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pinned,
        worker_init_fn=tied_to_this_process(),
        generator=_own_generator(seed),
    )
    return Batches(iter(loader), dataset, pinned=pinned)


def _pinned(numbered: Iterator[tuple[list[int], Any]]) -> Iterator[tuple[list[int], Any]]:
    """Batches in pinned memory, from which a GPU copies by itself."""
    for numbers, batch in numbered:
        yield numbers, map_tensors(torch.Tensor.pin_memory, batch)


def has_samples(dataset: Any) -> bool:
    """Whether it has a length and samples by number. Streams and sources have not."""
    return not isinstance(dataset, IterableDataset) and not is_source(dataset)


def _made(dataset: Any, *, size: int, seed: int, first: int, stride: int) -> Iterator[tuple[list[int], Any]]:
    """The micro-batches of a source. Random numbers depend on the seed and the number of the micro-batch.

    Without a state, the first one is made twice: if it differs, it depends on something that no checkpoint holds.
    """
    number = first
    if not has_state(dataset) and content_hash(_one(dataset, number, size, seed)) != content_hash(
        _one(dataset, number, size, seed)
    ):
        raise RecipeError(
            f"batch({number}, {size}) gave two different micro-batches, so a killed run could not resume: {PUT_BACK}; "
            "random numbers must come from the generators of random, numpy and torch, which surefoot seeds"
        )
    while True:
        yield list(range(number * size, (number + 1) * size)), _one(dataset, number, size, seed)
        number += stride


def _one(dataset: Any, number: int, size: int, seed: int) -> Any:
    with kept(devices=()):
        seed_all(derive(seed, "made", number))
        return dataset.batch(number, size)


def _refuse_what_samples_need(collate: Collate | None, workers: int) -> None:
    if collate is not None:
        raise RecipeError("collate joins samples, and batch(number, size) returns whole micro-batches: leave it out")
    if workers:
        raise RecipeError(f"workers={workers} load samples, and batch(number, size) runs in the trainer: set workers=0")


def _gathered(dataset: Any, places: Iterator[np.ndarray], join: _Join, *, look: int) -> Iterator[tuple[list[int], Any]]:
    """Reads whole micro-batches. Calls the data set's `will_need`, if it has one, `look` micro-batches ahead.

    In torch, `__getitems__` returns a list of samples. Any other result is already a batch.
    """
    advise = getattr(dataset, "will_need", None) if look else None
    coming: deque[np.ndarray] = deque()
    while True:
        while len(coming) <= (look if advise else 0) and (rows := next(places, None)) is not None:
            coming.append(rows)
            if advise:
                advise(rows[:, 1])
        if not coming:
            return
        rows = coming.popleft()
        made = dataset.__getitems__(rows[:, 1])
        yield (
            join(list(zip(rows.tolist(), made, strict=True))) if isinstance(made, list) else (rows[:, 1].tolist(), made)
        )


def order_seed(seed: int) -> int:
    """The seed of the order in which a run with this seed takes its samples."""
    return derive(seed, "order")


class _Places(Sampler[Any]):
    """For each micro-batch of one rank, its samples as rows of (epoch, number)."""

    def __init__(self, samples: int, seed: int, size: int, *, first: int, rank: int, ranks: int) -> None:
        self.samples, self.seed, self.size = samples, order_seed(seed), size
        self.first, self.rank, self.ranks = first, rank, ranks

    def __iter__(self) -> Iterator[np.ndarray]:
        micro_batch = self.first
        while True:
            begin = (micro_batch * self.ranks + self.rank) * self.size
            epochs = np.arange(begin, begin + self.size) // self.samples
            numbers = sample_ids(self.samples, self.seed, begin, self.size)
            yield np.stack([epochs, numbers.astype(np.int64)], axis=1)
            micro_batch += 1


class _OneEpoch(Sampler[Any]):
    """The first epoch of an order, in as many micro-batches as `batches_in` says, over all ranks."""

    def __init__(self, order: _Places) -> None:
        self.order = order

    def __iter__(self) -> Iterator[np.ndarray]:
        order, places = self.order, iter(self.order)
        for micro_batch in range(-(-batches_in(order.samples, order.size) // order.ranks)):
            rows = next(places)
            begin = (micro_batch * order.ranks + order.rank) * order.size
            yield rows[: order.samples - begin] if begin < order.samples else rows[:1]


def batches_in(samples: int, size: int) -> int:
    """How many micro-batches hold each sample once."""
    return -(-samples // size)


class _Seeded(Dataset[Any]):
    """A data set whose samples always draw the same random numbers, in any process and order."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed, self.draws = dataset, seed, _draws(dataset)

    def __getitems__(self, places: np.ndarray) -> list[tuple[list[int], Any]]:
        if not self.draws:
            return [(place, self.dataset[place[1]]) for place in places.tolist()]
        with kept(devices=()):
            return [(place, self._sample(*place)) for place in places.tolist()]

    def _sample(self, epoch: int, number: int) -> Any:
        seed_all(derive(self.seed, "sample", epoch, number))
        return self.dataset[number]


class _Join:
    """Joins samples into a batch. The random numbers of `collate` depend on the seed and the first sample."""

    def __init__(self, collate: Collate | None, seed: int) -> None:
        self.collate, self.seed = collate, seed

    def __call__(self, placed: list[tuple[list[int], Any]]) -> tuple[list[int], Any]:
        numbers, samples = [number for (_, number), _ in placed], [sample for _, sample in placed]
        if self.collate is None:
            return numbers, default_collate(samples)
        with kept(devices=()):
            seed_all(derive(self.seed, "batch", *placed[0][0]))
            return numbers, self.collate(samples)


class _Numbered(IterableDataset[Any]):
    """A stream of samples with their numbers, seeded by epoch and worker."""

    def __init__(self, dataset: IterableDataset[Any], seed: int, epoch: int) -> None:
        self.dataset, self.seed, self.epoch = dataset, seed, epoch

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        worker = get_worker_info()
        which, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        seed_all(derive(self.seed, "stream", self.epoch, which))
        for number, sample in enumerate(self.dataset):
            yield number * workers + which, sample


def _streamed(
    dataset: IterableDataset[Any], *, size: int, seed: int, collate: Collate, workers: int, pinned: bool
) -> Iterator[tuple[list[int], Any]]:
    """The stream's micro-batches, epoch after epoch. To start later, earlier ones are read and skipped."""
    epoch = 0
    while True:
        loader = DataLoader(
            _Numbered(dataset, seed, epoch),
            batch_size=size,
            collate_fn=partial(_collate, collate),
            num_workers=workers,
            pin_memory=pinned,
            worker_init_fn=tied_to_this_process(),
            generator=_own_generator(seed),
        )
        draws, batches, nothing = Stream(seed), iter(loader), True
        while True:
            with draws():
                batch = next(batches, None)
            if batch is None:
                break
            nothing = False
            yield batch
        if nothing:
            raise RecipeError("the data set is empty")
        epoch += 1


def _every(stream: Iterator[Any], first: int, stride: int) -> Iterator[Any]:
    for number, batch in enumerate(stream):
        if number >= first and (number - first) % stride == 0:
            yield batch


def _collate(collate: Collate, numbered: list[tuple[int, Any]]) -> tuple[list[int], Any]:
    return [number for number, _ in numbered], collate([sample for _, sample in numbered])


def _draws(dataset: Dataset[Any]) -> bool:
    """Whether reading a sample may draw random numbers. A data set can declare that it does not."""
    return bool(getattr(dataset, "draws_randomness", not isinstance(dataset, TensorDataset)))


def _own_generator(seed: int) -> torch.Generator:
    """A generator for the loader's own seed, so that it is not drawn from the global one."""
    return torch.Generator().manual_seed(derive(seed, "workers"))
