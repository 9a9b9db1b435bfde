"""Reads samples again, in workers and in copies, and compares them."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.types import AnyDataset, AnyLoader
from surefoot.checks.facts.samples import Samples
from surefoot.checks.samples.dataset_copies import changed_by_reading, copied, print_of
from surefoot.checks.samples.labels import MOST_SAMPLES, look_at_labels, parts
from surefoot.checks.samples.loader_use import Seen
from surefoot.checks.samples.shared_with_evaluation import beside, first_of
from surefoot.checks.samples.views import crossing_of
from surefoot.events.phases import Phases
from surefoot.randomness import kept, seed_all

_MOST_AT_ONCE = 32
"""At most this many samples of a batch are read again."""


def read_again(seen: Seen, evaluating: list[Seen], phases: Phases, *, labelled: bool = True) -> Samples:
    """What the data set of one training loader does, compared with those of evaluation. Keeps the random state.

    If `labelled`, the last value of a sample is its label.
    """
    with phases.deaf(), kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _look(seen, evaluating, labelled=labelled)


def _look(seen: Seen, evaluating: list[Seen], *, labelled: bool) -> Samples:
    """Skips whatever cannot be read again."""
    loader = seen.loader
    found = Samples(type(loader.dataset).__name__)
    for part in (_workers, _stream, _reading, _views, *([_labelled] if labelled else [])):
        with attempt(f"reading {type(loader.dataset).__name__} again"):
            part(found, loader)
    if seen.repeats and not isinstance(loader.dataset, IterableDataset):
        with suppress(ValueError):
            found.alike_epochs |= not found.alike_workers and _never_stays(
                copied(loader.dataset), loader.batch_size or 1
            )
    shares = [(each, *beside(found, loader, each.loader)) for each in evaluating]
    found.shared_with_evaluation = _worst(shares)
    return found


def _worst(shares: list[tuple[Seen, float, bool]]) -> float:
    """The largest share. A second read of the training set counts only if no evaluation reads anything else.

    A loader whose name says that it does not evaluate is skipped.
    """
    partly = [share for seen, share, whole in shares if not whole and not (share == 1.0 and seen.trains_by_name)]
    return max(partly, default=1.0 if any(seen.evaluates_by_name for seen, _, _ in shares) else 0.0)


def _as_it_is(batch: Any) -> Any:
    return batch


def _workers(found: Samples, loader: AnyLoader) -> None:
    """Asks every worker for the same sample three times, in two epochs."""
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or loader.num_workers < 2:
        return
    if _stays(copied(dataset)):
        return
    epochs = [[print_of(batch[0]) for batch in _asked(loader)] for _ in range(2)]
    random_ = any(len(set(read[::2])) > 1 for read in epochs)
    found.alike_workers = random_ and any(read[::2] == read[1::2] for read in epochs)
    by_hand = loader.worker_init_fn is not None or not found.alike_workers
    found.alike_epochs = random_ and epochs[0] == epochs[1] and not loader.persistent_workers and by_hand


def _stays(reader: Any) -> bool:
    """Is a sample the same whenever it is read? One that only a worker can read counts as random."""
    with attempt("reading one sample again"):
        return len({print_of(reader[0]) for _ in range(3)}) == 1
    return False


def _never_stays(reader: Any, count: int) -> bool:
    """Do this many samples never repeat when they are read again and again?"""
    places = range(min(count, len(reader), _MOST_AT_ONCE))
    reads = [tuple(print_of(reader[place]) for place in places) for _ in range(4)]
    return len(set(reads)) == len(reads)


def _asked(loader: AnyLoader) -> AnyLoader:
    return DataLoader(
        loader.dataset,
        batch_sampler=[[0]] * 6,
        num_workers=2,
        worker_init_fn=loader.worker_init_fn,
        collate_fn=_as_it_is,
        multiprocessing_context=loader.multiprocessing_context,
    )


def _stream(found: Samples, loader: AnyLoader) -> None:
    """The first samples of two workers must differ, and their random numbers must differ by worker and by epoch."""
    if not isinstance(loader.dataset, IterableDataset) or loader.num_workers < 2:
        return
    once, again = _prints_of_first(loader.dataset, seed=0), _prints_of_first(loader.dataset, seed=1)
    labels_stay = once[1] == again[1] != []
    found.whole_stream = _is_whole(loader, samples_stay=once[0] == again[0] != [] or labels_stay)
    found.whole_stream |= labels_stay and _is_shifted(loader)
    if not found.whole_stream and generators_of(loader.dataset):
        states = list(itertools.islice(_two_workers(loader, _Drawn(loader.dataset)), 8))
        found.alike_workers = len(states) == 8 and states[::2] == states[1::2] and len(set(states)) == 4
    if once[0] != again[0] and not found.alike_workers and not loader.persistent_workers:
        epochs = [[print_of(each) for each in itertools.islice(_two_workers(loader, loader.dataset), 8)] for _ in "12"]
        found.alike_epochs = epochs[0] == epochs[1]


def _is_whole(loader: AnyLoader, *, samples_stay: bool) -> bool:
    """Do two workers yield the same samples, apart from fresh noise?"""
    if _is_told_twice(loader):
        return True
    seeded = _Seeded(loader.dataset) if samples_stay else loader.dataset
    read = [print_of(sample) for sample in itertools.islice(_two_workers(loader, seeded), 8)]
    return len(read) >= 4 and read[: len(read) // 2 * 2 : 2] == read[1::2]


def _is_shifted(loader: AnyLoader) -> bool:
    """Do two workers yield the same labels, except for where they start?"""
    read = [print_of(list(parts(each))[-1]) for each in itertools.islice(_two_workers(loader, loader.dataset), 32)]
    one, other = read[::2], read[1::2]
    tells = len(one) == len(other) >= 8 and len(set(read)) > len(one) // 2
    return tells and (one[1:] == other[:-1] or other[1:] == one[:-1])


def _is_told_twice(loader: AnyLoader) -> bool:
    """Do two workers together yield every sample of a finite stream twice, in any order?"""
    alone: list[Any] = []
    with attempt("reading a stream without workers"):
        alone = first_of(copied(loader.dataset))
    if not 4 <= len(alone) <= 4 * MOST_SAMPLES:
        return False
    both = itertools.islice(_two_workers(loader, loader.dataset), 2 * len(alone) + 1)
    once = Counter(print_of(sample) for sample in alone)
    return Counter(print_of(sample) for sample in both) == once + once


def _prints_of_first(stream: Any, *, seed: int) -> tuple[list[int], list[int]]:
    """Hashes of a stream's first samples, and of their last values if these differ; none if only workers read it."""
    seed_all(seed)
    samples: list[Any] = []
    with attempt("reading a stream without workers"):
        samples = list(itertools.islice(iter(copied(stream)), 16))
    last = [print_of(list(parts(sample))[-1]) for sample in samples]
    return [print_of(sample) for sample in samples], last if len(set(last)) > 1 else []


class _Seeded(IterableDataset[Any]):
    """A stream that draws the same random numbers in every worker."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Any]:
        seed_all(0)
        return iter(self.stream)


def _two_workers(loader: AnyLoader, dataset: AnyDataset) -> AnyLoader:
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        worker_init_fn=loader.worker_init_fn,
        collate_fn=_as_it_is,
        multiprocessing_context=loader.multiprocessing_context,
    )


class _Drawn(IterableDataset[int]):
    """Yields a hash of the stream's own generators after each sample."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[int]:
        for _ in self.stream:
            yield hash(tuple(str(state) for state in generators_of(self.stream)))


def generators_of(dataset: Any) -> list[Any]:
    """The states of the random generators among a data set's attributes."""
    found: list[Any] = []
    for value in getattr(dataset, "__dict__", {}).values():
        if isinstance(value, torch.Generator):
            found.append(value.get_state().tolist())
        elif isinstance(value, np.random.Generator):
            found.append(value.bit_generator.state)
        elif isinstance(value, random.Random):
            found.append(value.getstate())
    return found


def _reading(found: Samples, loader: AnyLoader) -> None:
    if not isinstance(loader.dataset, IterableDataset):
        found.changed_by_reading = changed_by_reading(loader.dataset)


def _views(found: Samples, loader: AnyLoader) -> None:
    if not isinstance(loader.dataset, IterableDataset):
        found.crossing = crossing_of(copied(loader.dataset))


def _labelled(found: Samples, loader: AnyLoader) -> None:
    look_at_labels(found, loader, copied(loader.dataset))
