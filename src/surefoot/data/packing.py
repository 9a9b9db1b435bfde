"""Packing: whole documents side by side in rows of `context` tokens. No document sees another.

The packing is computed once and stored next to the corpus, in files that are read page by page, like the
tokens themselves:

    corpus/packed-CONTEXT.pieces   shard, tokens and first token of each piece
    corpus/packed-CONTEXT.rows     the number of pieces up to the end of each row
    corpus/packed-CONTEXT.json     the corpus that both belong to; written last

Those of held-out text are named `packed-held-out-CONTEXT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from surefoot.data.first_fit import Piece, first_fit
from surefoot.data.pages import MappedFile, PagedWriter
from surefoot.data.shards import Corpus
from surefoot.errors import DataError
from surefoot.plain_files import write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.manifest import HELD_OUT

IGNORED = -100
"""The target of a position without a loss. `cross_entropy` ignores it by default."""

PIECE = np.dtype([("shard", "<u4"), ("tokens", "<u4"), ("first", "<u8")])
Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class _PackedFiles:
    """The corpus that was packed, and the digests of the two files."""

    corpus: str
    pieces: str
    rows: str


class PackedDocuments(Dataset[Packed]):
    """Sample `i` is a row: tokens, targets, positions that restart with each document, and document numbers.

    A document longer than `context` is split into pieces. In the padding at the end of a row, the target is `IGNORED`
    and the document is -1. Every token except the first of a document is a target exactly once.
    """

    draws_randomness = False
    counts_all = True
    """Whether every token but the first of a document is a target, as a token ledger counts them."""

    def __init__(self, corpus: Corpus, context: int, tell: Callable[[int], None] | None = None) -> None:
        self.corpus, self.context = corpus, context
        parts = {shard.part for shard in corpus.manifest.shards}
        name = corpus.folder / f"packed-{'held-out-' if parts == {HELD_OUT} else ''}{context}.json"
        if not _belongs(name, corpus):
            _pack(corpus, context, name, tell)
        packed = read_record(_PackedFiles, name, error=DataError)
        self._pieces = MappedFile(name.with_suffix(".pieces"), packed.pieces)
        self._rows = MappedFile(name.with_suffix(".rows"), packed.rows)
        self._piece = np.frombuffer(self._pieces.map, PIECE)
        self._end = np.frombuffer(self._rows.map, "<u8")

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedDocuments, (self.corpus, self.context)

    def __len__(self) -> int:
        return len(self._end)

    def __getitem__(self, index: int) -> Packed:
        tokens, targets, positions, documents = self.__getitems__([index])
        return tokens[0], targets[0], positions[0], documents[0]

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> Packed:
        shape = len(indices), self.context
        tokens, targets = np.zeros(shape, np.int64), np.full(shape, IGNORED, np.int64)
        positions, documents = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
        for row, index in enumerate(indices):
            at = 0
            for number, (shard, count, first) in enumerate(self.pieces(int(index))):
                here = slice(at, at + count)
                piece = self.corpus.tokens(shard, first, count + 1)
                tokens[row, here], targets[row, here] = piece[:-1], piece[1:]
                positions[row, here], documents[row, here] = np.arange(count), number
                at += count
        return tuple(map(torch.from_numpy, (tokens, targets, positions, documents)))  # type: ignore[return-value]

    def pieces(self, index: int) -> list[Piece]:
        """The pieces in a row: shard, targets and first token of each."""
        begin, end = index - (index > 0), index + 1
        self._rows.check((8 * begin,), 8 * (end - begin))
        first, last = int(self._end[begin]) if index else 0, int(self._end[index])
        self._pieces.check((first * PIECE.itemsize,), (last - first) * PIECE.itemsize)
        return self._piece[first:last].tolist()

    def targets_by_shard(self) -> np.ndarray:
        """The number of targets of each shard."""
        counts = np.zeros(len(self.corpus.manifest.shards), np.int64)
        self._pieces.whole()
        for first in range(0, len(self._piece), 2**20):
            some = self._piece[first : first + 2**20]
            counts += np.bincount(some["shard"], some["tokens"], len(counts)).astype(np.int64)
        return counts

    def will_need(self, indices: Sequence[int] | np.ndarray) -> None:
        """Asks the kernel to read the tokens of these samples ahead."""
        for index in indices:
            for shard, count, first in self.pieces(int(index)):
                self.corpus.advise(shard, first, count + 1)

    def identity(self) -> str:
        """Identifies every token and the packing."""
        return f"documents packed by {self.context} from {self.corpus.identity()}"


def document_pieces(corpus: Corpus, context: int) -> Iterator[Piece]:
    """Every document of a corpus. Documents longer than `context` are split into pieces."""
    for shard, each in enumerate(corpus.manifest.shards):
        begin = 0
        for start in range(0, each.documents, 65_536):
            for end in corpus.ends(shard, start, 65_536).tolist():
                for first in range(begin, end - 1, context):
                    yield shard, min(context, end - 1 - first), first
                begin = end


def _pack(corpus: Corpus, context: int, name: Path, tell: Callable[[int], None] | None) -> None:
    pieces, rows = PagedWriter(name.with_suffix(".pieces")), PagedWriter(name.with_suffix(".rows"))
    written = 0
    for row in first_fit(document_pieces(corpus, context), context):
        pieces.write(np.array(row, PIECE).tobytes())
        written += len(row)
        rows.write(written.to_bytes(8, "little"))
        if tell is not None:
            tell(len(row))
    if not written:
        pieces.discard()
        rows.discard()
        raise DataError(f"{corpus.folder} holds no document of two or more tokens, so there is nothing to pack")
    write_whole(
        name, to_json(_PackedFiles(corpus.identity(), pieces.close(), rows.close()), indent=None) + "\n", shared=True
    )


def _belongs(name: Path, corpus: Corpus) -> bool:
    """Whether this corpus was packed before."""
    return name.exists() and read_record(_PackedFiles, name, error=DataError).corpus == corpus.identity()
