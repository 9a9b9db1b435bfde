"""Label probes: whether samples keep their own labels, as a data set gives them and as they are joined into batches."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from surefoot.checks.evidence import Samples
from surefoot.probes.dependence import dependence, waves
from surefoot.probes.places import places_of
from surefoot.randomness import seed_all
from surefoot.witness.scene import tensors

MOST_SAMPLES = 512
MOST_SECONDS = 1.0
"""Reading ends after this, with what was read by then."""
_STRONG, _NONE, _SORTED = 8.0, 2.5, 20.0
"""Dependence beyond doubt, none that could be told from chance, and that of values on places they were sorted into."""
_JOINED = 16
_FEWEST_ALIKE = 64
"""So many samples must hold one and the same number for it to be a constant."""
_MOST_STREAMED = 8 * MOST_SAMPLES


def parts(sample: Any) -> Iterator[np.ndarray]:
    """The values of a sample, as arrays."""
    mapped = sample.values() if isinstance(sample, dict) else sample
    for each in mapped if isinstance(sample, dict | list | tuple) else [sample]:
        yield each.detach().numpy() if isinstance(each, torch.Tensor) else np.asarray(each)


def look_at_labels(found: Samples, loader: DataLoader[Any], reader: Any) -> None:
    """All that is to be seen of the labels of a data set with places, read from a copy of it."""
    if isinstance(reader, IterableDataset):
        found.sorted_labels = _kinds_in_a_row(_labels_of(itertools.islice(reader, _MOST_STREAMED)), loader)
        return
    _order(found, loader, reader)
    found.redrawn_labels = redrawn(reader)
    found.turned_alone = _turned_alone(reader)
    found.collated_apart = _collated_apart(reader, loader)
    found.label_shift = _shift(reader)
    found.labels_in_order, found.told_by_inputs = _in_order(reader), _is_told(reader)
    found.constant_parts = _constant_parts(reader)


def _constant_parts(reader: Any) -> tuple[float, ...]:
    """The numbers that are all that some part of the samples holds, from the first to the last."""
    step = max(1, len(reader) // MOST_SAMPLES)
    samples = [list(parts(each)) for each in as_many_as_time_allows(reader[n] for n in range(0, len(reader), step))]
    if len(samples) < _FEWEST_ALIKE or len({len(each) for each in samples}) != 1:
        return ()
    columns = [np.concatenate([each.ravel() for each in column]) for column in zip(*samples, strict=True)]
    return tuple(
        float(each[0]) for each in columns if each.size and each.dtype.kind in "iufb" and (each == each[0]).all()
    )


def _order(found: Samples, loader: DataLoader[Any], reader: Any) -> None:
    """How labels are shared out, and labels that come kind by kind in the order in which they are read."""
    labels = _labels(reader)
    if len(labels) < 32:
        return
    found.commonest_label = max(labels.count(each) for each in set(labels)) / len(labels)
    places = None if isinstance(loader.sampler, RandomSampler) else places_of(loader, reader)
    if places:
        found.sorted_labels = _kinds_in_a_row(_labels(reader, places), loader)


def _kinds_in_a_row(labels: list[float], loader: DataLoader[Any]) -> int:
    """How many kinds of labels there are, where each comes in one run or two; 0 where they are mixed."""
    kinds, batch = len(set(labels)), loader.batch_size or 1
    runs = 1 + sum(a != b for a, b in itertools.pairwise(labels))
    many = len(labels) >= 32 and 2 <= kinds <= len(labels) // 8 and len(labels) / kinds >= min(batch, 8)
    return kinds if many and runs <= 2 * kinds else 0


def _labels(reader: Any, places: Sequence[int] = ()) -> list[float]:
    """The labels of up to 512 samples, those at some places or all, spread over them."""
    places = places or range(len(reader))
    spread = places[:: max(1, len(places) // MOST_SAMPLES)]
    if isinstance(reader, TensorDataset):
        last = reader.tensors[-1]
        return [] if last.dim() != 1 else last[list(spread)].tolist()
    return _labels_of(reader[n] for n in spread)


def _labels_of(samples: Iterable[Any]) -> list[float]:
    """One number that comes last in each sample; none where something else does."""
    labels = [list(parts(sample))[-1] for sample in as_many_as_time_allows(samples)]
    return [] if any(each.size != 1 or each.dtype.kind not in "iufb" for each in labels) else [e.item() for e in labels]


def as_many_as_time_allows(samples: Iterable[Any]) -> list[Any]:
    """Those of some samples that can be read in a short time."""
    ends, read = time.monotonic() + MOST_SECONDS, []
    for sample in samples:
        read.append(sample)
        if time.monotonic() > ends:
            break
    return read


def redrawn(reader: Any) -> int:
    """How many of a few samples came with another label when they were read again, with the very same inputs."""
    count = 0
    for place in range(min(8, len(reader))):
        reads = [list(parts(reader[place])) for _ in range(4)]
        labels: dict[bytes, set[bytes]] = {}
        for *inputs, label in reads:
            if not inputs or label.size != 1 or sum(each.size for each in inputs) < 4:
                return 0
            labels.setdefault(b"".join(each.tobytes() for each in inputs), set()).add(label.tobytes())
        count += any(len(each) > 1 for each in labels.values())
    return count


def rearranged(one: np.ndarray, other: np.ndarray) -> bool:
    """Are these the same values in other places, as a flip or a turn leaves them?"""
    if one.size < 4 or one.size != other.size or np.array_equal(one, other):
        return False
    return np.array_equal(np.sort(one, axis=None), np.sort(other, axis=None))


def _turned_alone(reader: Any) -> bool:
    """Are pictures turned or flipped anew with every reading, and maps of the same size that come with them not?"""
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
    """Does a flip or a half turn leave it as it is?"""
    return any(np.array_equal(one, np.flip(one, axes)) for axes in (-1, -2, (-2, -1)))


def _differ(some: list[np.ndarray]) -> bool:
    return not all(np.array_equal(some[0], each) for each in some)


def _is_a_view(reads: list[list[list[np.ndarray]]], place: int, turning: set[tuple[int, tuple[int, ...]]]) -> bool:
    """Does what stays hold the values of what turns, as it was?"""
    kept = np.sort(reads[0][0][place], axis=None)
    return any(np.array_equal(kept, np.sort(reads[0][0][other], axis=None)) for other, _ in turning)


# ------------------------------------------------------------------------------------------- joined into a batch


def _collated_apart(reader: Any, loader: DataLoader[Any]) -> bool:
    """Does joining samples into a batch put some of their values beside others'?

    Each is joined alone, too. The largest of the values tells which sample went where; all others must have gone there.
    """
    join, count = loader.collate_fn, min(_JOINED, len(reader))
    if join is None or count < 4:
        return False
    samples = [reader[place] for place in range(count)]
    alone = [_joined(join, [sample]) for sample in samples]
    together = _joined(join, samples)
    if any(len(each) != len(together) for each in alone):
        return False
    columns = [[each[place] for each in alone] for place in range(len(together))]
    rows = [place for place, whole in enumerate(together) if whole.ndim and len(whole) == count]
    for place in sorted(rows, key=lambda place: -together[place].size):
        order = _where(together[place], columns[place])
        if order is not None:
            return any(_is_apart(whole, columns[n], order) for n, whole in enumerate(together) if n != place)
    return False


def _joined(join: Any, samples: list[Any]) -> list[np.ndarray]:
    seed_all(0)
    return [each.detach().numpy() for each in tensors(join(samples))]


def _where(whole: np.ndarray, column: list[np.ndarray]) -> list[int] | None:
    """The sample behind each row; None unless every row is one sample's and no other's."""
    order = []
    for row in whole:
        alike = [place for place, one in enumerate(column) if len(one) == 1 and _begins_with(row, one[0])]
        if len(alike) != 1:
            return None
        order += alike
    return order if len(set(order)) == len(order) else None


def _is_apart(whole: np.ndarray, column: list[np.ndarray], order: list[int]) -> bool:
    """Are these the values of the samples, each once, in another order?"""
    if all(len(one) == 1 for one in column) and whole.ndim and len(whole) == len(column):
        moved = any(not _begins_with(whole[row], column[place][0]) for row, place in enumerate(order))
        return moved and _same_rows(whole, [one[0] for one in column])
    pieces = [column[place] for place in order]
    if whole.ndim != 1 or any(one.ndim != 1 for one in pieces) or sum(map(len, pieces)) != len(whole):
        return False
    return not np.array_equal(np.concatenate(pieces), whole) and np.array_equal(
        np.sort(np.concatenate(pieces)), np.sort(whole)
    )


def _same_rows(whole: np.ndarray, rows: list[np.ndarray]) -> bool:
    left = list(rows)
    for row in whole:
        match = next((n for n, one in enumerate(left) if _begins_with(row, one)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _begins_with(row: np.ndarray, one: np.ndarray) -> bool:
    """Is a row what one sample has, and then nothing but one padding value?"""
    if row.ndim != one.ndim or any(a < b for a, b in zip(row.shape, one.shape, strict=True)):
        return False
    inside = tuple(slice(0, size) for size in one.shape)
    if not np.array_equal(row[inside], one):
        return False
    outside = np.ones(row.shape, dtype=bool)
    outside[inside] = False
    return len(np.unique(row[outside])) <= 1


# ------------------------------------------------------------------------------------------- told from the inputs


def look_at_arrays(inputs: torch.Tensor, targets: torch.Tensor) -> Samples:
    """What is to be seen of the labels of two arrays of which a loop takes the same rows."""
    found, pair = Samples("the arrays of the loop"), TensorDataset(inputs, targets)
    found.label_shift, found.labels_in_order = _shift(pair), _in_order(pair)
    found.told_by_inputs = _is_told(pair)
    return found


def _shift(reader: Any) -> int:
    """How far from its sample the label stands that depends on it, where its own does not; 0 for a sound data set."""
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
    """Do labels depend on their place and no input on its own, or the other way round, and neither on the other?"""
    columns = list(_columns(reader))
    if not columns or len(columns[0][1]) < 64:
        return False
    targets = columns[0][1]
    places = np.arange(len(targets), dtype=np.float64)[:, None]
    of_labels, of_inputs = dependence(places, targets), [dependence(x, places) for x, _ in columns]
    labels_stand = of_labels > _STRONG and all(abs(each) < _NONE for each in of_inputs)
    inputs_stand = targets[0].size == 1 and abs(of_labels) < _NONE and any(each > _SORTED for each in of_inputs)
    return (labels_stand or inputs_stand) and all(_is_unrelated(x, targets) for x, _ in columns)


def _is_unrelated(inputs: np.ndarray, targets: np.ndarray) -> bool:
    """Do inputs tell nothing of targets, neither by what stands where nor, in pictures, by their waves?"""
    return all(abs(dependence(each, targets)) < _NONE for each in (inputs, *waves(inputs)))


def _is_told(reader: Any) -> bool:
    inputs, targets = arrays(reader)
    return len(inputs) >= 32 and dependence(inputs, targets) > _STRONG


def independent_beside(training: Any, evaluation: Any) -> bool:
    """Do labels depend on inputs in evaluation, beyond doubt, and not at all in training?"""
    ours, theirs = arrays(training), arrays(evaluation)
    if min(len(ours[0]), len(theirs[0])) < 32 or len(ours[0]) < len(theirs[0]):
        return False
    if not dependence(*theirs) > _STRONG or not dependence(*ours) or not _is_unrelated(*ours):
        return False
    return np.array_equal(ours[0], arrays(training)[0])  # what is drawn anew may hide what it depends on


def arrays(reader: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest input and the last value of samples, where all have one shape; empty otherwise."""
    nothing = np.zeros(0), np.zeros(0)
    return max(_columns(reader), key=lambda columns: columns[0].size, default=nothing)


def _columns(reader: Any, most: int = 256) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each input beside the last value, of samples in a row or spread over all, where they have one shape."""
    step = max(1, len(reader) // most) if isinstance(reader, TensorDataset) else 1
    read = as_many_as_time_allows(reader[place] for place in range(0, min(most * step, len(reader)), step))
    samples = [list(parts(sample)) for sample in read]
    if not samples or any(len(each) < 2 for each in samples):
        return
    for place in range(len(samples[0]) - 1):
        pairs = [(each[place], each[-1]) for each in samples]
        if len({(x.shape, y.shape, x.dtype.kind, y.dtype.kind) for x, y in pairs}) == 1:
            yield np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs])
