"""Checks on data before a run: faults that would train a model on wrong numbers without an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from surefoot.data.first_fit import first_fit
from surefoot.data.shards import Corpus
from surefoot.records.finding import Finding, Findings
from surefoot.records.manifest import HELD_OUT, ITEM_BYTES, TRAIN

Tell = Callable[[int], None]
_CHUNK = 1 << 22


def inspect_corpus(corpus: Corpus, *, context: int | None = None, tell: Tell | None = None) -> Findings:
    """Reads every token twice: once in order, once by document. Calls `tell` with the number of tokens read."""
    tell = tell or (lambda _: None)
    found = [
        *_not_hashed(corpus),
        *_narrow_dtype(corpus),
        *_out_of_range(corpus, tell),
        *_documents(corpus, context, tell),
    ]
    return Findings(str(corpus.folder), CHECKS, tuple(found))


CHECKS = (
    "tokens-not-hashed",
    "dtype-too-narrow",
    "token-out-of-range",
    "held-out-seen-in-training",
    "repeated-documents",
    "documents-longer-than-context",
    "padding-above-a-tenth",
)


def inspect_batch(batch: Any, *, vocabulary: int, ignored: int = -100) -> tuple[Finding, ...]:
    """Checks a first batch: are ids in range, and are targets one ahead of their tokens?"""
    tokens, targets = (np.asarray(each) for each in tuple(batch)[:2])
    return (*_batch_out_of_range(tokens, targets, vocabulary, ignored), *_shift(tokens, targets, ignored))


def _not_hashed(corpus: Corpus) -> Iterator[Finding]:
    if not corpus.manifest.hashed:
        yield Finding(
            check="tokens-not-hashed",
            severity="warning",
            seen=f"{len(corpus.manifest.shards):,} files without page hashes",
            where=str(corpus.folder),
            why="a flipped bit or a replaced file would be trained on, and nothing would say so",
            remedy="surefoot data verify FOLDER --adopt writes the hashes beside the files",
        )


def _narrow_dtype(corpus: Corpus) -> Iterator[Finding]:
    dtype, vocabulary = corpus.manifest.dtype, corpus.manifest.vocabulary
    room = np.iinfo(dtype).max + 1
    if vocabulary > room:
        yield Finding(
            check="dtype-too-narrow",
            severity="error",
            seen=f"a vocabulary of {vocabulary:,} in {dtype}, which holds {room:,}",
            where=str(corpus.folder),
            why="larger ids were wrapped around when they were written, and are other tokens now",
            remedy="tokenise the text again; surefoot data tokenize takes uint32 where it must",
        )
    elif 0 < vocabulary <= 2**16 < room:
        yield Finding(
            check="dtype-too-narrow",
            severity="info",
            seen=f"a vocabulary of {vocabulary:,} in {dtype}; uint16 would hold it",
            where=str(corpus.folder),
            why=f"the corpus takes {ITEM_BYTES[dtype] // 2} times the disk and the page cache that it needs",
            remedy="nothing is wrong; tokenise again if space matters",
        )


def _out_of_range(corpus: Corpus, tell: Tell) -> Iterator[Finding]:
    vocabulary = corpus.manifest.vocabulary
    for number, shard in enumerate(corpus.manifest.shards):
        for first in range(0, shard.tokens, _CHUNK):
            tokens = corpus.tokens(number, first, min(_CHUNK, shard.tokens - first))
            tell(len(tokens))
            if vocabulary and (tokens.max() >= vocabulary or tokens.min() < 0):
                place = int(np.flatnonzero((tokens >= vocabulary) | (tokens < 0))[0])
                yield Finding(
                    check="token-out-of-range",
                    severity="error",
                    seen=f"token {int(tokens[place]):,} in a vocabulary of {vocabulary:,}",
                    where=f"{shard.file}, token {first + place:,}",
                    why="an embedding has no such row: a crash on a CPU, an illegal memory access on a GPU",
                    remedy="name the vocabulary that made the tokens, or the type that they are stored in",
                )
                break


def _documents(corpus: Corpus, context: int | None, tell: Tell) -> Iterator[Finding]:
    """All checks that need document ends, in one pass. Yields nothing if a shard has none."""
    if not all(shard.documents for shard in corpus.manifest.shards):
        return
    seen: dict[str, dict[int, str]] = {TRAIN: {}, HELD_OUT: {}}
    lengths, repeated = [], 0
    for number, shard in enumerate(corpus.manifest.shards):
        ends = np.concatenate([[0], corpus.ends(number)])
        lengths.append(np.diff(ends))
        known = seen.setdefault(shard.part, {})
        for document, (first, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            digest = xxh3_64_intdigest(corpus.tokens(number, first, end - first).tobytes()) if end > first else 0
            repeated += digest in known
            known.setdefault(digest, f"document {document:,} of {shard.file}")
            tell(end - first)
    counts = np.concatenate(lengths)
    yield from _seen_in_training(seen)
    yield from _repeated(corpus, repeated, len(counts))
    if context is not None:
        yield from _long_documents(corpus, counts, context)
        yield from _padding(corpus, counts, context)


def _seen_in_training(seen: dict[str, dict[int, str]]) -> Iterator[Finding]:
    both = seen[TRAIN].keys() & seen[HELD_OUT].keys()
    if both:
        one = min(both)
        yield Finding(
            check="held-out-seen-in-training",
            severity="error",
            seen=f"{len(both):,} held-out documents are in the training part too",
            where=f"{seen[HELD_OUT][one]} is {seen[TRAIN][one]}",
            why="the held-out loss measures memory, and is too low",
            remedy="split by content, as surefoot data tokenize --held-out does, or drop the duplicates",
        )


def _repeated(corpus: Corpus, repeated: int, documents: int) -> Iterator[Finding]:
    if repeated > 0.01 * documents:
        yield Finding(
            check="repeated-documents",
            severity="warning",
            seen=f"{repeated:,} of {documents:,} documents ({repeated / documents:.1%}) were there before",
            where=str(corpus.folder),
            why="they are trained on more often than the rest, and are learned by heart first",
            remedy="remove duplicates from the text; datatrove has steps for exact and near duplicates",
        )


def _long_documents(corpus: Corpus, lengths: np.ndarray, context: int) -> Iterator[Finding]:
    long = lengths > context + 1
    if long.any():
        yield Finding(
            check="documents-longer-than-context",
            severity="info",
            seen=f"{int(long.sum()):,} of {len(lengths):,} documents are longer than {context:,} tokens, "
            f"and hold {lengths[long].sum() / lengths.sum():.1%} of all tokens",
            where=str(corpus.folder),
            why="they are cut; what comes later in them does not see what came before",
            remedy="a longer context, if the model is to learn from distance",
        )


def _padding(corpus: Corpus, lengths: np.ndarray, context: int) -> Iterator[Finding]:
    """The share of padding that packing would leave."""
    pieces = ((0, min(context, left), 0) for length in lengths.tolist() for left in range(length - 1, 0, -context))
    rows = sum(1 for _ in first_fit(pieces, context))
    targets = int(np.maximum(lengths - 1, 0).sum())
    share = 1 - targets / (rows * context) if rows else 0.0
    if share > 0.1:
        yield Finding(
            check="padding-above-a-tenth",
            severity="warning",
            seen=f"{share:.1%} of the positions would be padding, packed by document into {rows:,} rows of {context:,}",
            where=str(corpus.folder),
            why="they cost as much time and memory as the others, and teach nothing",
            remedy="a longer context, or windows, which have no padding",
        )


def _batch_out_of_range(tokens: np.ndarray, targets: np.ndarray, vocabulary: int, ignored: int) -> Iterator[Finding]:
    for name, ids in (("tokens", tokens), ("targets", targets[targets != ignored])):
        if ids.size and (ids.max() >= vocabulary or ids.min() < 0):
            yield Finding(
                check="token-out-of-range",
                severity="error",
                seen=f"{name} from {int(ids.min()):,} to {int(ids.max()):,} in a vocabulary of {vocabulary:,}",
                where="the first batch",
                why="an embedding has no such row: a crash on a CPU, an illegal memory access on a GPU",
                remedy="give the model the vocabulary of the corpus, or the corpus that fits the model",
            )


def _shift(tokens: np.ndarray, targets: np.ndarray, ignored: int) -> Iterator[Finding]:
    ahead = {
        shift: _agreement(tokens[:, shift:], targets[:, : targets.shape[1] - shift], ignored)
        for shift in range(min(4, tokens.shape[1] - 1))
    }
    best = max(ahead, key=lambda shift: ahead[shift])
    if best != 1 and ahead[best] == 1 and ahead.get(1, 0) < 1:
        yield Finding(
            check="shifted-labels",
            severity="warning" if best == 0 else "error",
            seen=f"targets are {best} ahead of their tokens, not 1",
            where="the first batch",
            why="the model learns to copy its input" if best == 0 else "the model learns to skip tokens",
            remedy="targets[:, i] = tokens[:, i + 1]; a model that shifts them itself, as Hugging Face's do, is right",
        )


def _agreement(tokens: np.ndarray, targets: np.ndarray, ignored: int) -> float:
    real = targets != ignored
    return float((tokens == targets)[real].mean()) if real.any() else 0.0
