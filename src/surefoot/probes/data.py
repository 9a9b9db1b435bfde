"""Data probes: samples are read again, in workers and in copies, to see whether they are what they should be."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import xxhash
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, Subset, TensorDataset

from surefoot.checks.evidence import Samples
from surefoot.phases import Phases
from surefoot.randomness import kept, seed_all
from surefoot.witness.loaders import Loaders, Seen

MOST_BYTES = 1 << 26
"""A data set that holds more is not copied."""
MOST_SAMPLES = 512


def samples_of(loaders: Loaders) -> Iterator[Samples]:
    """What the data sets behind training loaders do."""
    evaluating = [seen for seen in loaders.seen.values() if seen.role == "evaluation"]
    for seen in list(loaders.seen.values()):
        if seen.role == "training":
            yield read_again(seen, evaluating, loaders.scene.phases)


def read_again(seen: Seen, evaluating: list[Seen], phases: Phases) -> Samples:
    """What one training loader's data set does, beside those of evaluation; random numbers are as before."""
    with phases.deaf(), kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _look(seen, evaluating)


def _look(seen: Seen, evaluating: list[Seen]) -> Samples:
    """Whatever cannot be read again is left out."""
    loader = seen.loader
    found = Samples(type(loader.dataset).__name__)
    for part in (_workers, _stream, _reading, _order):
        try:
            part(found, loader)
        except Exception:
            continue
    others = [each.loader for each in evaluating if each.loader.dataset is not loader.dataset]
    found.shared_with_evaluation = _worst([_beside(found, loader, other) for other in others])
    return found


def _worst(shares: list[tuple[float, bool]]) -> float:
    """The largest share. The whole training set, read again, counts only where no evaluation reads anything else."""
    partly = [share for share, whole in shares if not whole]
    return max(partly, default=1.0 if shares else 0.0)


def print_of(sample: Any) -> int:
    """A hash of a sample's values."""
    return hash(tuple(xxhash.xxh3_64_intdigest(np.ascontiguousarray(each).tobytes()) for each in _parts(sample)))


def _parts(sample: Any) -> Iterator[np.ndarray]:
    """The values of a sample, as arrays."""
    mapped = sample.values() if isinstance(sample, dict) else sample
    for each in mapped if isinstance(sample, dict | list | tuple) else [sample]:
        yield each.detach().numpy() if isinstance(each, torch.Tensor) else np.asarray(each)


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
    reader: Any = copied(dataset)
    if len({print_of(reader[0]) for _ in range(3)}) == 1:
        return
    epochs = [[print_of(batch[0]) for batch in _asked(loader)] for _ in range(2)]
    found.alike_workers = any(read[::2] == read[1::2] for read in epochs)
    found.alike_epochs = epochs[0] == epochs[1] and not loader.persistent_workers and not found.alike_workers


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
    """The first samples of two workers must not be the same."""
    if not isinstance(loader.dataset, IterableDataset) or loader.num_workers < 2:
        return
    workers = DataLoader(
        loader.dataset,
        batch_size=None,
        num_workers=2,
        worker_init_fn=loader.worker_init_fn,
        collate_fn=_as_it_is,
        multiprocessing_context=loader.multiprocessing_context,
    )
    read = [print_of(sample) for sample in itertools.islice(workers, 8)]
    found.whole_stream = len(read) >= 4 and read[: len(read) // 2 * 2 : 2] == read[1::2]


def _reading(found: Samples, loader: DataLoader[Any]) -> None:
    """Reading a sample must not change what the data set holds."""
    if isinstance(loader.dataset, IterableDataset):
        return
    reader: Any = copied(loader.dataset)
    before = {name: array.copy() for name, array in _arrays(reader)}
    for _ in range(3):
        seed_all(0)
        reader[0]
    for name, array in _arrays(reader):
        if name in before and array.shape == before[name].shape and not np.array_equal(array, before[name]):
            found.changed_by_reading = name


def _order(found: Samples, loader: DataLoader[Any]) -> None:
    """How labels are shared out, and labels that only ever rise along a data set that is read in its order."""
    labels = _labels(loader.dataset)
    if len(labels) < 32:
        return
    kinds = len(set(labels))
    found.commonest_label = max(labels.count(each) for each in set(labels)) / len(labels)
    if not isinstance(loader.sampler, SequentialSampler):
        return
    runs = 1 + sum(a != b for a, b in itertools.pairwise(labels))
    batch = loader.batch_size or 1
    if 2 <= kinds <= len(labels) // 8 and runs <= 2 * kinds and len(labels) / kinds >= min(batch, 8):
        found.sorted_labels = kinds


def _labels(dataset: Any) -> list[int]:
    """The labels of up to 512 samples in a row, spread over all of it: whole numbers that come last in a sample."""
    count = len(dataset)
    step = max(1, count // MOST_SAMPLES)
    if isinstance(dataset, TensorDataset):
        last = dataset.tensors[-1]
        return [] if last.is_floating_point() or last.dim() != 1 else last[::step].tolist()
    reader = copied(dataset)
    labels = []
    for number in range(0, count, step):
        sample = reader[number]
        label = list(sample.values())[-1] if isinstance(sample, dict) else sample[-1]
        if isinstance(label, torch.Tensor | np.ndarray):
            if label.ndim or "float" in str(label.dtype):
                return []
            label = label.item()
        if not isinstance(label, int | np.integer):
            return []
        labels.append(int(label))
    return labels


def _beside(found: Samples, training: DataLoader[Any], evaluation: DataLoader[Any]) -> tuple[float, bool]:
    """The share of evaluation samples that training reads, too, and whether they are all that it reads."""
    ours, theirs = training.dataset, evaluation.dataset
    if isinstance(ours, IterableDataset) or isinstance(theirs, IterableDataset):
        return 0.0, False
    try:
        reader: Any = copied(theirs)
        if _root(ours) is _root(theirs) and len({print_of(reader[0]) for _ in range(3)}) > 1:
            found.random_in_evaluation = True
            return 0.0, False
        if isinstance(ours, Subset) and isinstance(theirs, Subset) and ours.dataset is theirs.dataset:
            shared = len(set(ours.indices) & set(theirs.indices)) / max(1, len(theirs.indices))
        else:
            shared = _shared(copied(ours), reader)
    except Exception:
        return 0.0, False
    return shared, shared == 1.0 and len(ours) <= len(theirs)


def _shared(ours: Any, theirs: Any) -> float:
    """The share of evaluation samples that training holds, too."""
    if len(ours) > 16 * MOST_SAMPLES:
        return 0.0
    held = {print_of(ours[number]) for number in range(len(ours))}
    step = max(1, len(theirs) // MOST_SAMPLES)
    read = [print_of(theirs[number]) for number in range(0, len(theirs), step)]
    if len(set(read)) < 0.9 * len(read) or sum(each.size for each in _parts(theirs[0])) < 4:
        return 0.0  # samples so small that they repeat by chance
    return sum(each in held for each in read) / max(1, len(read))


def _root(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _arrays(dataset: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays and tensors among a data set's attributes, and in lists of them."""
    for name, value in getattr(_root(dataset), "__dict__", {}).items():
        items = value if isinstance(value, list | tuple) else [value]
        for number, each in enumerate(items[:4096]):
            if isinstance(each, torch.Tensor) and each.device.type == "cpu" and each.layout == torch.strided:
                each = (
                    each.detach().view(torch.uint8).numpy() if each.dtype == torch.bfloat16 else each.detach().numpy()
                )
            if isinstance(each, np.ndarray):
                yield (f"{name}[{number}]" if value is not each and isinstance(value, list | tuple) else name), each
