"""Data probes: samples are read again, in workers and in copies, to see whether they are what they should be."""

from __future__ import annotations

import copy
import itertools
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import xxhash
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from surefoot.checks.evidence import Samples
from surefoot.phases import Phases
from surefoot.probes.labels import (
    MOST_SAMPLES,
    as_many_as_time_allows,
    independent_beside,
    look_at_labels,
    parts,
    rearranged,
    redrawn,
)
from surefoot.randomness import kept, seed_all
from surefoot.witness.loaders import Loaders, Seen

MOST_BYTES = 1 << 26
"""A data set that holds more is not copied."""
_MORE_THAN_NOISE = 0.7
"""Of the way between two samples: what an augmentation moves one by, and a little noise does not."""
_MOST_STREAMED = 16 * MOST_SAMPLES
_READ_AGAIN = 8
"""So many samples are read three times each, to see whether they are random, and one so many times."""


def samples_of(loaders: Loaders) -> Iterator[Samples]:
    """What the data sets behind training loaders do."""
    evaluating = [seen for seen in loaders.seen.values() if seen.role == "evaluation"]
    for seen in list(loaders.seen.values()):
        if seen.role == "training":
            beside = [each for each in evaluating if each.trainings & seen.trainings]
            yield read_again(seen, beside, loaders.scene.phases)


def read_again(seen: Seen, evaluating: list[Seen], phases: Phases) -> Samples:
    """What one training loader's data set does, beside those of evaluation; random numbers are as before."""
    with phases.deaf(), kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _look(seen, evaluating)


def _look(seen: Seen, evaluating: list[Seen]) -> Samples:
    """Whatever cannot be read again is left out."""
    loader = seen.loader
    found = Samples(type(loader.dataset).__name__)
    for part in (_workers, _stream, _reading, _labelled):
        try:
            part(found, loader)
        except Exception:
            continue
    if seen.repeats and not isinstance(loader.dataset, IterableDataset):
        with suppress(ValueError):
            found.alike_epochs |= not found.alike_workers and _never_stays(
                copied(loader.dataset), loader.batch_size or 1
            )
    found.shared_with_evaluation = _worst([_beside(found, loader, each.loader) for each in evaluating])
    return found


def _worst(shares: list[tuple[float, bool]]) -> float:
    """The largest share. The whole training set, read again, counts only where no evaluation reads anything else."""
    partly = [share for share, whole in shares if not whole]
    return max(partly, default=1.0 if shares else 0.0)


def print_of(sample: Any) -> int:
    """A hash of a sample's values."""
    return hash(tuple(xxhash.xxh3_64_intdigest(np.ascontiguousarray(each).tobytes()) for each in parts(sample)))


def copied(dataset: Dataset[Any]) -> Dataset[Any]:
    """A copy to read from, so that the data set itself is not touched."""
    if sum(array.nbytes for _, array in _arrays(dataset)) > MOST_BYTES:
        raise ValueError("too large to copy")
    return copy.deepcopy(dataset)


def _as_it_is(batch: Any) -> Any:
    return batch


def _workers(found: Samples, loader: DataLoader[Any]) -> None:
    """Every worker is asked for the same sample three times, in two epochs."""
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
    """Is a sample the same whenever it is read? Some can be read in a worker only, and are taken for random."""
    try:
        return len({print_of(reader[0]) for _ in range(3)}) == 1
    except Exception:
        return False


def _never_stays(reader: Any, count: int) -> bool:
    """Do so many samples, read again and again, never come out as before?"""
    places = range(min(count, len(reader), 4 * _READ_AGAIN))
    reads = [tuple(print_of(reader[place]) for place in places) for _ in range(4)]
    return len(set(reads)) == len(reads)


def _asked(loader: DataLoader[Any]) -> DataLoader[Any]:
    return DataLoader(
        loader.dataset,
        batch_sampler=[[0]] * 6,
        num_workers=2,
        worker_init_fn=loader.worker_init_fn,
        collate_fn=_as_it_is,
        multiprocessing_context=loader.multiprocessing_context,
    )


def _stream(found: Samples, loader: DataLoader[Any]) -> None:
    """The first samples of two workers must differ, and so must what they draw, from each other and by epoch."""
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


def _is_whole(loader: DataLoader[Any], *, samples_stay: bool) -> bool:
    """Do two workers yield the same samples, apart from noise that is drawn anew?"""
    if _is_told_twice(loader):
        return True
    seeded = _Seeded(loader.dataset) if samples_stay else loader.dataset
    read = [print_of(sample) for sample in itertools.islice(_two_workers(loader, seeded), 8)]
    return len(read) >= 4 and read[: len(read) // 2 * 2 : 2] == read[1::2]


def _is_shifted(loader: DataLoader[Any]) -> bool:
    """Do two workers yield the same labels, and differ only in where they begin?"""
    read = [print_of(list(parts(each))[-1]) for each in itertools.islice(_two_workers(loader, loader.dataset), 32)]
    one, other = read[::2], read[1::2]
    tells = len(one) == len(other) >= 8 and len(set(read)) > len(one) // 2
    return tells and (one[1:] == other[:-1] or other[1:] == one[:-1])


def _is_told_twice(loader: DataLoader[Any]) -> bool:
    """Do two workers together yield every sample of a stream that ends twice, in whatever order?"""
    try:
        alone = _first(copied(loader.dataset))
    except Exception:
        return False
    if not 4 <= len(alone) <= 4 * MOST_SAMPLES:
        return False
    both = itertools.islice(_two_workers(loader, loader.dataset), 2 * len(alone) + 1)
    once = Counter(print_of(sample) for sample in alone)
    return Counter(print_of(sample) for sample in both) == once + once


def _prints_of_first(stream: Any, *, seed: int) -> tuple[list[int], list[int]]:
    """Hashes of a stream's first samples, and of their last values, if not all are alike; none without a worker."""
    seed_all(seed)
    try:
        samples = list(itertools.islice(iter(copied(stream)), 16))
    except Exception:
        samples = []
    last = [print_of(list(parts(sample))[-1]) for sample in samples]
    return [print_of(sample) for sample in samples], last if len(set(last)) > 1 else []


class _Seeded(IterableDataset[Any]):
    """A stream that draws the same random numbers in every worker."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Any]:
        seed_all(0)
        return iter(self.stream)


def _two_workers(loader: DataLoader[Any], dataset: Dataset[Any]) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        worker_init_fn=loader.worker_init_fn,
        collate_fn=_as_it_is,
        multiprocessing_context=loader.multiprocessing_context,
    )


class _Drawn(IterableDataset[int]):
    """For each sample of a stream, where its own generators are after it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[int]:
        for _ in self.stream:
            yield hash(tuple(str(state) for state in generators_of(self.stream)))


def generators_of(dataset: Any) -> list[Any]:
    """The states of the random generators among a data set's attributes."""
    found: list[Any] = []
    for value in vars(dataset).values():
        if isinstance(value, torch.Generator):
            found.append(value.get_state().tolist())
        elif isinstance(value, np.random.Generator):
            found.append(value.bit_generator.state)
        elif isinstance(value, random.Random):
            found.append(value.getstate())
    return found


def _reading(found: Samples, loader: DataLoader[Any]) -> None:
    """Reading a sample must not change what the data set holds."""
    if isinstance(loader.dataset, IterableDataset):
        return
    reader: Any = copied(loader.dataset)
    before = {name: array.copy() for name, array in _arrays(reader)}
    for seed in range(_READ_AGAIN):
        seed_all(seed)  # some change a sample now and then
        reader[0]
        for name, array in _arrays(reader):
            if name in before and array.shape == before[name].shape and not np.array_equal(array, before[name]):
                found.changed_by_reading = name


def _labelled(found: Samples, loader: DataLoader[Any]) -> None:
    look_at_labels(found, loader, copied(loader.dataset))


def _beside(found: Samples, training: DataLoader[Any], evaluation: DataLoader[Any]) -> tuple[float, bool]:
    """The share of evaluation samples that training reads, too, and whether they are all that it reads."""
    ours, theirs = training.dataset, evaluation.dataset
    try:
        reader: Any = copied(theirs)
        if isinstance(ours, IterableDataset) or isinstance(theirs, IterableDataset):
            return _shared(_first(copied(ours)), _first(reader)), False
        if _is_random(reader, alike=_root(ours) is _root(theirs)) and type(_root(ours)) is type(_root(theirs)):
            found.random_in_evaluation = not redrawn(reader)
            return 0.0, False
        found.unlike_evaluation = ours is not theirs and independent_beside(copied(ours), reader)
        if isinstance(ours, Subset) and isinstance(theirs, Subset) and ours.dataset is theirs.dataset:
            shared = len(set(ours.indices) & set(theirs.indices)) / max(1, len(theirs.indices))
        else:
            shared = _shared(_all(copied(ours), 16 * MOST_SAMPLES), _spread(reader))
    except Exception:
        return 0.0, False
    return shared, shared == 1.0 and len(ours) <= len(theirs)  # type: ignore[arg-type]


def _is_random(reader: Any, *, alike: bool) -> bool:
    """Does a sample differ when it is read again, and by more than a little noise, with the same label?

    Of a data set that is `alike` in training and evaluation any difference will do.
    """
    reads = [[list(parts(reader[place])) for _ in range(3)] for place in range(min(_READ_AGAIN, len(reader)))]
    if alike:
        return any(len({print_of(each) for each in of_one}) > 1 for of_one in reads)
    if sum(any(map(_is_turned, itertools.repeat(of_one[0]), of_one[1:])) for of_one in reads) >= 2:
        return True
    if any(len(each) < 2 or each[-1].size != 1 for of_one in reads for each in of_one):
        return False
    kept = all(len({print_of(each[-1]) for each in of_one}) == 1 for of_one in reads)
    again = max(_way(of_one[0], other) for of_one in reads for other in of_one[1:])
    between = np.mean([_way(one[0], other[0]) for one, other in itertools.combinations(reads, 2)])
    return kept and bool(again > _MORE_THAN_NOISE * between)


def _is_turned(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """Has something of a sample other places when it is read again: its picture, or the map that belongs to it?"""
    return any(rearranged(a, b) for a, b in zip(one, other, strict=False) if a.ndim)


def _way(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    """How far two samples' first values are from each other."""
    if one[0].shape != other[0].shape:
        return 0.0
    return float(np.linalg.norm(one[0].astype(np.float64) - other[0].astype(np.float64)))


def _first(stream: Any) -> list[Any]:
    """The first samples of a stream, as many as can be read in a short time."""
    return as_many_as_time_allows(itertools.islice(stream, _MOST_STREAMED))


def _all(reader: Any, most: int) -> list[Any]:
    return [reader[place] for place in range(len(reader))] if len(reader) <= most else []


def _spread(reader: Any) -> list[Any]:
    return [reader[place] for place in range(0, len(reader), max(1, len(reader) // MOST_SAMPLES))]


def _shared(ours: list[Any], theirs: list[Any]) -> float:
    """The share of evaluation samples that are training samples, too."""
    held = {print_of(sample) for sample in ours}
    read = [print_of(sample) for sample in theirs]
    if not theirs or len(set(read)) < 0.9 * len(read) or sum(each.size for each in parts(theirs[0])) < 4:
        return 0.0  # samples so small that they repeat by chance
    return sum(each in held for each in read) / len(read)


def _root(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _arrays(dataset: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays and tensors among a data set's attributes, and in lists of them."""
    for name, value in getattr(_root(dataset), "__dict__", {}).items():
        yield from _arrays_in(name, value, deep=2)


def _arrays_in(name: str, value: Any, *, deep: int) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, list | tuple | dict) and deep:
        items = value.items() if isinstance(value, dict) else enumerate(value[:4096])
        for key, each in items:
            yield from _arrays_in(f"{name}[{key}]", each, deep=deep - 1)
    elif isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
        plain = value.detach()
        yield name, plain.view(torch.uint8).numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
    elif isinstance(value, np.ndarray):
        yield name, value
