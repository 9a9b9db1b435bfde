"""Tests whether samples keep their own labels in the data set and in batches."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, RandomSampler, TensorDataset

from surefoot.checks.engine.scene import array_of
from surefoot.checks.engine.types import AnyLoader
from surefoot.checks.facts.samples import Samples
from surefoot.checks.samples.collation import collated_apart
from surefoot.checks.samples.dependence import dependence, waves
from surefoot.checks.samples.pairs import other_by_chance
from surefoot.checks.samples.places import places_of

MOST_SAMPLES = 512
MOST_SECONDS, MOST_CPU_SECONDS = 1.0, 0.25
"""Reading stops after this time, or after as much work of this thread, and uses what it has."""
_STRONG, _NONE, _SORTED = 8.0, 2.5, 20.0
"""Dependence beyond doubt, dependence that may be chance, and the dependence of sorted values on their position."""
_AS_BY_CHANCE = 0.7
"""Redrawn labels differ at least this often, relative to the labels of two samples."""
_FEWEST_ALIKE = 64
"""At least this many samples must hold the same number for it to be a constant."""
_MOST_STREAMED = 8 * MOST_SAMPLES


def parts(sample: Any) -> Iterator[np.ndarray]:
    """The values of a sample, as arrays."""
    mapped = sample.values() if isinstance(sample, dict) else sample
    for each in mapped if isinstance(sample, dict | list | tuple) else [sample]:
        yield array_of(each) if isinstance(each, torch.Tensor) else np.asarray(each)


def look_at_labels(found: Samples, loader: AnyLoader, reader: Any) -> None:
    """Records everything that a copy of a data set shows about its labels."""
    if isinstance(reader, IterableDataset):
        labels = _labels_of(itertools.islice(reader, _MOST_STREAMED))
        found.sorted_labels = _kinds_in_a_row(labels, loader, len(labels))
        return
    _order(found, loader, reader)
    found.redrawn_labels = redrawn(reader)
    found.turned_alone = _turned_alone(reader)
    found.collated_apart = collated_apart(reader, loader)
    found.label_shift = _shift(reader)
    found.labels_in_order, found.told_by_inputs = _in_order(reader), _is_told(reader)
    found.constant_parts = _constant_parts(reader)


def _constant_parts(reader: Any) -> tuple[float, ...]:
    """The constants: numbers that some part of the samples always holds, from the first to the last."""
    step = max(1, len(reader) // MOST_SAMPLES)
    samples = [list(parts(each)) for each in as_many_as_time_allows(reader[n] for n in range(0, len(reader), step))]
    if len(samples) < _FEWEST_ALIKE or len({len(each) for each in samples}) != 1:
        return ()
    columns = [np.concatenate([each.ravel() for each in column]) for column in zip(*samples, strict=True)]
    return tuple(
        float(each[0]) for each in columns if each.size and each.dtype.kind in "iufb" and (each == each[0]).all()
    )


def _order(found: Samples, loader: AnyLoader, reader: Any) -> None:
    """Records how often the commonest label occurs, and whether labels are read one class after another."""
    labels = _labels(reader)
    if len(labels) < 32:
        return
    found.commonest_label = max(labels.count(each) for each in set(labels)) / len(labels)
    places = None if isinstance(loader.sampler, RandomSampler) else places_of(loader, reader)
    if places and places == places_of(loader, reader):  # other samplers are random
        found.sorted_labels = _kinds_in_a_row(_labels(reader, places), loader, len(places))


def _kinds_in_a_row(labels: list[float], loader: AnyLoader, count: int) -> int:
    """How many different labels there are, if each comes in one run or two; 0 if they or batches are mixed.

    The labels may be a part: `count` are read in a pass.
    """
    kinds, batch = len(set(labels)), max(1, (loader.batch_size or 1) * len(labels) // max(1, count))
    runs = 1 + sum(a != b for a, b in itertools.pairwise(labels))
    many = len(labels) >= 32 and 2 <= kinds <= len(labels) // 8 and len(labels) / kinds >= min(batch, 8)
    batches = [len(set(labels[begin : begin + batch])) for begin in range(0, len(labels), batch)]
    mixed = sum(batches) / max(1, len(batches)) - 1 > (kinds - 1) / 2
    return kinds if many and runs <= 2 * kinds and not mixed else 0


def _labels(reader: Any, places: Sequence[int] = ()) -> list[float]:
    """The labels of up to 512 samples, spread over the given places or over all."""
    places = places or range(len(reader))
    spread = places[:: max(1, len(places) // MOST_SAMPLES)]
    if isinstance(reader, TensorDataset):
        last = reader.tensors[-1]
        return [] if last.dim() != 1 else last[list(spread)].tolist()
    return _labels_of(reader[n] for n in spread)


def _labels_of(samples: Iterable[Any]) -> list[float]:
    """The last value of each sample; none unless it is a single number."""
    read = as_many_as_time_allows(samples)
    if any(isinstance(each, list | tuple) and each and isinstance(each[-1], dict | list | tuple) for each in read):
        return []  # surefoot's own stream of a recipe: a number, and the sample
    labels = [list(parts(sample))[-1] for sample in read]
    return [] if any(each.size != 1 or each.dtype.kind not in "iufb" for each in labels) else [e.item() for e in labels]


def as_many_as_time_allows(samples: Iterable[Any]) -> list[Any]:
    """The samples that can be read in a short time."""
    ends, works, read = time.monotonic() + MOST_SECONDS, time.thread_time() + MOST_CPU_SECONDS, []
    for sample in samples:
        read.append(sample)
        if time.monotonic() > ends or time.thread_time() > works:
            break
    return read


def redrawn(reader: Any) -> int:
    """How many of a few samples had a different label when they were read again with the same inputs.

    0 if labels differ only now and then, as with several annotators or label dropout.
    """
    count, pairs, every = 0, [], []
    for place in range(min(8, len(reader))):
        reads = [list(parts(reader[place])) for _ in range(4)]
        labels: dict[bytes, list[bytes]] = {}
        for *inputs, label in reads:
            if not inputs or label.size != 1 or sum(each.size for each in inputs) < 4:
                return 0
            labels.setdefault(b"".join(each.tobytes() for each in inputs), []).append(label.tobytes())
        count += any(len(set(each)) > 1 for each in labels.values())
        pairs += [a != b for each in labels.values() for a, b in itertools.combinations(each, 2)]
        every += [label.tobytes() for *_, label in reads]
    return count if sum(pairs) > _AS_BY_CHANCE * other_by_chance(every) * len(pairs) else 0


def rearranged(one: np.ndarray, other: np.ndarray) -> bool:
    """Are these the same values in other places, as after a flip or a rotation?"""
    if one.size < 4 or one.size != other.size or np.array_equal(one, other):
        return False
    return np.array_equal(np.sort(one, axis=None), np.sort(other, axis=None))


def _turned_alone(reader: Any) -> bool:
    """Does every read rotate or flip images, but not the maps of the same size that come with them?"""
    reads = [[list(parts(reader[place])) for _ in range(4)] for place in range(min(8, len(reader)))]
    if len({len(each) for of_one in reads for each in of_one}) != 1:
        return False
    turning, staying = set(), set()
    for place, first in enumerate(reads[0][0]):
        column = [[each[place] for each in of_one] for of_one in reads]
        if sum(any(rearranged(of_one[0], other) for other in of_one[1:]) for of_one in column) >= 2:
            turning.add((place, first.shape[-2:]))
        elif first.ndim >= 2 and all(np.array_equal(of_one[0], each) for of_one in column for each in of_one):
            telling = [of_one[0] for of_one in column if not _is_symmetric(of_one[0])]
            staying |= {(place, first.shape[-2:])} if len(telling) >= 2 and _differ(telling) else set()
    sizes = {size for _, size in turning if len(size) == 2}
    return any(size in sizes and not _is_a_view(reads, place, turning) for place, size in staying)


def _is_symmetric(one: np.ndarray) -> bool:
    """Does a flip or a half turn leave it unchanged?"""
    return any(np.array_equal(one, np.flip(one, axes)) for axes in (-1, -2, (-2, -1)))


def _differ(some: list[np.ndarray]) -> bool:
    return not all(np.array_equal(some[0], each) for each in some)


def _is_a_view(reads: list[list[list[np.ndarray]]], place: int, turning: set[tuple[int, tuple[int, ...]]]) -> bool:
    """Is the array that stays the original of one that is rotated?"""
    kept = np.sort(reads[0][0][place], axis=None)
    return any(np.array_equal(kept, np.sort(reads[0][0][other], axis=None)) for other, _ in turning)


# ------------------------------------------------------------------------------------------- compared with inputs


def look_at_arrays(inputs: torch.Tensor, targets: torch.Tensor) -> Samples:
    """What two arrays of which a loop takes the same rows show about the labels."""
    found, pair = Samples("the arrays of the loop"), TensorDataset(inputs, targets)
    found.label_shift, found.labels_in_order = _shift(pair), _in_order(pair)
    found.told_by_inputs = _is_told(pair)
    if targets[0].numel() == 1:
        labels = targets.flatten().tolist()
        found.commonest_label = max(Counter(labels).values()) / len(labels)
    return found


def _shift(reader: Any) -> int:
    """How far from its sample the label is that depends on it, if its own does not; 0 for a sound data set."""
    return next((shift for columns in _columns(reader) if (shift := _shift_of(*columns))), 0)


def _shift_of(inputs: np.ndarray, targets: np.ndarray) -> int:
    if len(inputs) < 64 or abs(dependence(inputs, targets)) > _NONE:
        return 0
    found = {
        1: dependence(inputs[:-1], targets[1:]),
        -1: dependence(inputs[1:], targets[:-1]),
    }
    shift = max(found, key=lambda each: found[each])
    return shift if found[shift] > _STRONG else 0


def _in_order(reader: Any) -> bool:
    """Do only labels, or only inputs, depend on their position, and neither on the other?"""
    columns = list(_columns(reader))
    if not columns or len(columns[0][1]) < 64:
        return False
    targets = columns[0][1]
    places = np.arange(len(targets), dtype=np.float64)[:, None]
    of_labels, of_inputs = dependence(places, targets), [dependence(x, places) for x, _ in columns]
    labels_stand = of_labels > _STRONG and all(abs(each) < _NONE for each in of_inputs)
    in_no_series = not any(_overlap(x) for x, _ in columns)
    inputs_stand = targets[0].size == 1 and abs(of_labels) < _NONE and any(each > _SORTED for each in of_inputs)
    inputs_stand &= in_no_series
    return (labels_stand or inputs_stand) and all(_is_unrelated(x, targets) for x, _ in columns)


def _overlap(rows: np.ndarray) -> bool:
    """Do consecutive rows hold the same numbers, like windows of one series?"""
    flat = rows.reshape(len(rows), -1)
    pairs = list(itertools.pairwise(flat[:32]))
    return flat.shape[1] > 1 and all(np.isin(later, former).mean() >= 0.5 for former, later in pairs)


def _is_unrelated(inputs: np.ndarray, targets: np.ndarray) -> bool:
    """Are targets independent of inputs, both of their values and, for images, of their waves?"""
    return all(abs(dependence(each, targets)) < _NONE for each in (inputs, *waves(inputs)))


def _is_told(reader: Any) -> bool:
    inputs, targets = arrays(reader)
    return len(inputs) >= 32 and dependence(inputs, targets) > _STRONG


def independent_beside(training: Any, evaluation: Any) -> bool:
    """Do labels clearly depend on inputs in evaluation, but not at all in training?"""
    ours, theirs = arrays(training), arrays(evaluation)
    if min(len(ours[0]), len(theirs[0])) < 32 or len(ours[0]) < len(theirs[0]):
        return False
    if any(a.shape[1:] != b.shape[1:] or a.dtype.kind != b.dtype.kind for a, b in zip(ours, theirs, strict=True)):
        return False  # the last value is something else
    if not dependence(*theirs) > _STRONG or not dependence(*ours) or not _is_unrelated(*ours):
        return False
    return np.array_equal(ours[0], arrays(training)[0])  # random inputs may hide the dependence


def arrays(reader: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest input and the last value of samples, if all have one shape; otherwise empty."""
    nothing = np.zeros(0), np.zeros(0)
    return max(_columns(reader), key=lambda columns: columns[0].size, default=nothing)


def _columns(reader: Any, most: int = 256) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each input with the last value, for samples in a row or spread over all, if they have one shape."""
    step = max(1, len(reader) // most) if isinstance(reader, TensorDataset) else 1
    read = as_many_as_time_allows(reader[place] for place in range(0, min(most * step, len(reader)), step))
    samples = [list(parts(sample)) for sample in read]
    if not samples or any(len(each) < 2 for each in samples):
        return
    for place in range(len(samples[0]) - 1):
        pairs = [(each[place], each[-1]) for each in samples]
        if len({(x.shape, y.shape, x.dtype.kind, y.dtype.kind) for x, y in pairs}) == 1:
            yield np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs])
