"""Computes the token ledger from the order of samples: tokens trained, repeated, padded and left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from surefoot.data.batches import order_seed
from surefoot.data.mixture import Mixture
from surefoot.data.order import sample_ids, samples_at
from surefoot.data.packing import PackedDocuments
from surefoot.data.windows import TokenWindows
from surefoot.records.token_ledger import SourceTokens, TokenLedger

TokenData = TokenWindows | PackedDocuments | Mixture
Tell = Callable[[int], None]
Booked = Counter[str]
_CHUNK = 65_536
MOST_FOLLOWED = 500_000
"""The most samples that a run follows for its ledger when it ends. They take some seconds."""


def ledger_of_run(
    data: object, *, seed: int, step_samples: int, steps: int, passed_over: Collection[int]
) -> TokenLedger | None:
    """The ledger of a run's steps so far.

    None if the data is not tokens, if only marked ones bear loss, or if there are too many samples to follow.
    """
    if (
        not isinstance(data, TokenData)
        or not getattr(data, "counts_all", True)
        or steps * step_samples % len(data) > MOST_FOLLOWED
    ):
        return None
    left_out = [range(step * step_samples, (step + 1) * step_samples) for step in passed_over if step < steps]
    return token_ledger(data, steps * step_samples, seed=seed, left_out=left_out)


def token_ledger(
    data: TokenData, samples: int, *, seed: int = 0, left_out: Iterable[range] = (), tell: Tell | None = None
) -> TokenLedger:
    """The ledger of the first `samples` samples of a run with this seed, over all ranks, except those left out.

    Whole epochs are computed at once. The samples of the current epoch are followed one by one.
    """
    order = order_seed(seed)
    new, again = _followed(data, samples, order, tell)
    for places in left_out:
        samples -= len(places)
        for place in places:
            first, more = _targets(data, sample_ids(len(data), order, place, 1))
            if place < len(data):
                new, again = new - first, again - more
            else:
                again = again - first - more
    sources = tuple(
        SourceTokens(name, held, new[name], again[name], masked, held - masked - usable)
        for name, (held, masked, usable) in sorted(_held(data).items())
    )
    return TokenLedger(sources, padding=samples * _context(data) - new.total() - again.total())


def _followed(data: TokenData, samples: int, seed: int, tell: Tell | None = None) -> tuple[Booked, Booked]:
    """Targets by source in the first samples of an order: those seen for the first time, and those repeated."""
    epochs, begun = divmod(samples, len(data))
    new, again = _whole_epoch(data) if epochs else (Counter(), Counter())
    if epochs > 1:
        again = Counter({name: again[name] + (epochs - 1) * (new[name] + again[name]) for name in new | again})
    for ids in _begun(len(data), seed, epochs, begun):
        first, more = _targets(data, ids)
        if epochs:
            again.update(first + more)
        else:
            new, again = new + first, again + more
        if tell is not None:
            tell(len(ids))
    return new, again


def _begun(size: int, seed: int, epoch: int, count: int) -> Iterator[np.ndarray]:
    for start in range(0, count, _CHUNK):
        yield sample_ids(size, seed, epoch * size + start, min(_CHUNK, count - start))


def _whole_epoch(data: TokenData) -> tuple[Booked, Booked]:
    if not isinstance(data, Mixture):
        return _usable(data), Counter()
    new: Booked = Counter()
    again: Booked = Counter()
    for number, (name, source) in enumerate(data.sources.items()):
        first, more = _followed(source, data.given[name], data.seed + number)
        new[name], again[name] = first.total(), more.total()
    return new, again


def _targets(data: TokenData, ids: np.ndarray) -> tuple[Booked, Booked]:
    """Targets by source in some samples: new and repeated. In a mixture, samples beyond a source's length repeat."""
    if isinstance(data, TokenWindows):
        return _window_targets(data, ids), Counter()
    if isinstance(data, PackedDocuments):
        return _packed_targets(data, ids), Counter()
    new: Booked = Counter()
    again: Booked = Counter()
    for number, (name, source) in enumerate(data.sources.items()):
        positions = ids[(ids >= data.starts[number]) & (ids < data.starts[number + 1])] - data.starts[number]
        for booked, some in ((new, positions < len(source)), (again, positions >= len(source))):
            inside = samples_at(len(source), data.seed + number, positions[some])
            booked[name] += _targets(source, inside)[0].total()
    return new, again


def _window_targets(data: TokenWindows, ids: np.ndarray) -> Booked:
    shards = np.searchsorted(data.starts, ids, side="right") - 1
    counts = np.bincount(shards, minlength=len(data.corpus.manifest.shards)) * data.context
    return _by_source(data, counts)


def _packed_targets(data: PackedDocuments, ids: np.ndarray) -> Booked:
    found: Booked = Counter()
    names = [shard.source for shard in data.corpus.manifest.shards]
    for index in ids.tolist():
        for shard, count, _ in data.pieces(index):
            found[names[shard]] += count
    return found


def _usable(data: TokenWindows | PackedDocuments) -> Booked:
    """All possible targets, by source."""
    if isinstance(data, TokenWindows):
        return _by_source(data, np.diff(data.starts) * data.context)
    return _by_source(data, data.targets_by_shard())


def _by_source(data: TokenWindows | PackedDocuments, counts: np.ndarray) -> Booked:
    found: Booked = Counter()
    for shard, count in zip(data.corpus.manifest.shards, counts.tolist(), strict=True):
        found[shard.source] += count
    return found


def _held(data: TokenData) -> dict[str, tuple[int, int, int]]:
    """For each source: tokens on disk, tokens that are never targets, and tokens that can be targets."""
    if isinstance(data, Mixture):
        parts = {name: list(_held(source).values()) for name, source in data.sources.items()}
        return {name: tuple(map(sum, zip(*rows, strict=True))) for name, rows in parts.items()}  # type: ignore[misc]
    usable, held, begins = _usable(data), Counter[str](), Counter[str]()
    for shard in data.corpus.manifest.shards:
        held[shard.source] += shard.tokens
        begins[shard.source] += shard.documents if isinstance(data, PackedDocuments) else shard.tokens > data.context
    return {name: (held[name], min(begins[name], held[name] - usable[name]), usable[name]) for name in held}


def _context(data: TokenData) -> int:
    return _context(next(iter(data.sources.values()))) if isinstance(data, Mixture) else data.context
