"""Finds samples that training and evaluation data sets share."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import xxhash
from torch.utils.data import IterableDataset, Subset

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.types import AnyLoader
from surefoot.checks.facts.samples import Samples
from surefoot.checks.samples.dataset_copies import copied, print_of, root
from surefoot.checks.samples.labels import (
    MOST_SAMPLES,
    as_many_as_time_allows,
    independent_beside,
    parts,
    rearranged,
    redrawn,
)
from surefoot.checks.samples.stored_samples import shared_rows

_MORE_THAN_NOISE = 0.7
"""An augmentation moves a sample by more than this share of the distance between two samples; noise does not."""
_FEW_VALUES = 16
"""Maps of classes hold at most this many values."""
_MOST_STREAMED = 16 * MOST_SAMPLES
_FEWEST_WORDS, _MOST_HIDDEN = 8, 0.5
"""If more than this share of the words is random, it belongs to the task."""
_MOST_TURNED = 2 * MOST_SAMPLES
"""Images are turned and compared if there are at most this many."""
_SMALLEST_IMAGE = 6
_READ_AGAIN = 8
"""How many samples are read three times each, to see whether they are random."""


def beside(found: Samples, training: AnyLoader, evaluation: AnyLoader) -> tuple[float, bool]:
    """The share of evaluation samples that training also reads, and whether they are all that it reads."""
    ours, theirs = _drawn_by(training), _drawn_by(evaluation)
    with attempt(f"comparing {type(ours).__name__} with {type(theirs).__name__}"):
        reader: Any = copied(theirs)
        if isinstance(ours, IterableDataset) or isinstance(theirs, IterableDataset):
            return _shared(first_of(copied(ours)), first_of(reader)), False
        if _is_augmented(reader, alike=root(ours) is root(theirs)) and type(root(ours)) is type(root(theirs)):
            found.random_in_evaluation = not redrawn(reader)
            return 0.0, False
        found.unlike_evaluation = ours is not theirs and independent_beside(copied(ours), reader)
        if isinstance(ours, Subset) and isinstance(theirs, Subset) and ours.dataset is theirs.dataset:
            shared = len(set(ours.indices) & set(theirs.indices)) / max(1, len(theirs.indices))
            if not shared and len(ours) <= _MOST_TURNED:
                shared = _shared_turned(_all(copied(ours), _MOST_TURNED), _spread(reader))
        else:
            held, read = _all(copied(ours), 16 * MOST_SAMPLES), _spread(reader)
            shared = _shared(held, read) or shared_rows(ours, theirs) or _shared_turned(held, read)
        return shared, shared == 1.0 and len(ours) <= len(theirs)
    return 0.0, False


def _drawn_by(loader: AnyLoader) -> Any:
    """The data set of a loader; of a sampler over some indices, these alone."""
    places = getattr(loader.sampler, "indices", None)
    if places is None or isinstance(loader.dataset, IterableDataset):
        return loader.dataset
    return Subset(loader.dataset, [int(place) for place in places])


def _is_augmented(reader: Any, *, alike: bool) -> bool:
    """Does a sample with the same label differ by more than a little noise when it is read again?

    If the data set is `alike` in training and evaluation, any difference counts. Randomness that belongs to the task
    does not: pairs, two views of each sample, noise next to the clean input, questions with their answers.
    """
    reads = [[list(parts(reader[place])) for _ in range(3)] for place in range(min(_READ_AGAIN, len(reader)))]
    if len({len(each) for of_one in reads for each in of_one}) != 1:
        return False
    columns = [[[each[place] for each in of_one] for of_one in reads] for place in range(len(reads[0][0]))]
    turned = [sum(any(rearranged(each[0], other) for other in each[1:]) for each in column) >= 2 for column in columns]
    drawn = [any(not np.array_equal(each[0], other) for each in column for other in each[1:]) for column in columns]
    if len(columns) < 2:
        return turned[0]
    if (drawn[-1] and not turned[-1]) or not any(drawn) or _is_of_task(columns, drawn, turned):
        return False
    if alike or any(turned) or _hides_words(columns, drawn):
        return True
    if _are_words(reads[0][0][0]):
        return False  # ids of words or things: if most are redrawn, that is the task
    again = max(_way(of_one[0], other) for of_one in reads for other in of_one[1:])
    between = np.mean([_way(one[0], other[0]) for one, other in itertools.combinations(reads, 2)])
    return columns[-1][0][0].size == 1 and bool(again > _MORE_THAN_NOISE * between)


def _hides_words(columns: list[list[list[np.ndarray]]], drawn: list[bool]) -> bool:
    """Do a few words of each text, or of any row of whole numbers, change with every read?"""
    for column, is_drawn in zip(columns[:-1], drawn[:-1], strict=True):
        first = column[0][0]
        if is_drawn and _are_words(first) and first.size >= _FEWEST_WORDS:
            alike = [each[0].shape == other.shape for each in column for other in each[1:]]
            if all(alike):
                changed = np.mean([(each[0] != other).mean() for each in column for other in each[1:]])
                return bool(changed < _MOST_HIDDEN)
    return False


def _are_words(values: np.ndarray) -> bool:
    return values.ndim == 1 and values.dtype.kind in "iu"


def _is_of_task(columns: list[list[list[np.ndarray]]], drawn: list[bool], turned: list[bool]) -> bool:
    """Is the random value a second view, or does it come with a value of its kind that stays?"""
    firsts = [column[0][0] for column in columns]
    kinds = [(each.shape, each.dtype.kind) for each in firsts]
    views = [kind for kind, is_drawn in zip(kinds[:-1], drawn[:-1], strict=True) if is_drawn]
    if len(set(views)) < len(views):
        return True
    rich = [len(np.unique(np.concatenate([each[0].ravel() for each in column]))) > _FEW_VALUES for column in columns]
    stay = {kind for kind, is_drawn, is_rich in zip(kinds, drawn, rich, strict=True) if is_rich and not is_drawn}
    return any(kind in stay and not is_turned for kind, is_turned in zip(kinds, turned, strict=True) if kind in views)


def _way(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    """The distance between the first values of two samples."""
    if one[0].shape != other[0].shape:
        return 0.0
    return float(np.linalg.norm(one[0].astype(np.float64) - other[0].astype(np.float64)))


def first_of(stream: Any) -> list[Any]:
    """The first samples of a stream, as many as can be read in a short time."""
    return as_many_as_time_allows(itertools.islice(stream, _MOST_STREAMED))


def _all(reader: Any, most: int) -> list[Any]:
    return [reader[place] for place in range(len(reader))] if len(reader) <= most else []


def _spread(reader: Any) -> list[Any]:
    return [reader[place] for place in range(0, len(reader), max(1, len(reader) // MOST_SAMPLES))]


def _shared(ours: list[Any], theirs: list[Any]) -> float:
    """The share of evaluation samples that are also training samples."""
    held = Counter(print_of(sample) for sample in ours)
    read = [print_of(sample) for sample in theirs]
    if not theirs or len(set(read)) < 0.9 * len(read) or sum(each.size for each in parts(theirs[0])) < 4:
        return 0.0  # samples this small repeat by chance
    shared = sum(each in held for each in read) / len(read)
    again = sum(count for count in held.values() if count > 1) / max(1, held.total())
    whole = all(each.dtype.kind in "iub" for each in parts(theirs[0]))
    return 0.0 if whole and shared <= 2 * again < 1 else shared  # so do texts of a few words


def _shared_turned(ours: list[Any], theirs: list[Any]) -> float:
    """The share of evaluation images that training holds flipped or turned: copies made before the split."""
    if not 0 < len(ours) <= _MOST_TURNED or not _is_image(theirs[0]) or not _is_image(ours[0]):
        return 0.0
    held, read = {_print_of_image(sample) for sample in ours}, [_print_of_image(sample) for sample in theirs]
    if len({print_of(sample) for sample in theirs}) < 0.9 * len(theirs):
        return 0.0
    return sum(each in held for each in read) / len(read)


def _is_image(sample: Any) -> bool:
    first = next(iter(parts(sample)), None)
    if first is None or first.ndim not in (2, 3) or min(first.shape[-2:]) < _SMALLEST_IMAGE:
        return False
    return len(np.unique(first)) > _FEW_VALUES


def _print_of_image(sample: Any) -> int:
    """A hash of an image that is the same for all its flips and quarter turns."""
    image = next(iter(parts(sample)))
    turned = (np.rot90(each, times, (-2, -1)) for each in (image, np.flip(image, -1)) for times in range(4))
    return min(xxhash.xxh3_64_intdigest(np.ascontiguousarray(each).tobytes()) for each in turned)
