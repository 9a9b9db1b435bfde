"""One task of tokenising: the shards of its documents, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

from surefoot.data.shards import ShardWriter, smallest_dtype
from surefoot.data.tokenizer import BYTES, BytePairTokenizer, ByteTokenizer, Tokenizer
from surefoot.errors import DataError
from surefoot.plain_files import write_whole
from surefoot.records.codec import to_json
from surefoot.records.manifest import HELD_OUT, TRAIN

BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Source:
    """Files of text under one name, and the number of tasks that share them."""

    name: str
    folder: str
    files: tuple[str, ...]
    tasks: int


@dataclass(frozen=True)
class Job:
    """All inputs that determine the tokens of a corpus. `held_out` and `audit` are shares of the documents."""

    sources: tuple[Source, ...]
    tokenizer: str
    end_of_document: str = ""
    held_out: float = 0.0
    audit: float = 0.005
    text_key: str = "text"


def write_shards(texts: Iterable[str], folder: Path, job: Job, source: str, rank: int) -> None:
    """One task: writes the shards of its documents, one for each part of the corpus."""
    tokenizer = tokenizer_of(folder, job)
    dtype, parts = smallest_dtype(tokenizer.size), (TRAIN, HELD_OUT) if job.held_out else (TRAIN,)
    names = {part: f"{source}-{part}-{rank:05d}" for part in parts}
    writers = {part: ShardWriter(folder, name, dtype, source=source, part=part) for part, name in names.items()}
    try:
        for part, tokens, text_bytes in _tokenized(texts, tokenizer, job):
            writers[part].add(tokens, text_bytes)
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    for part, writer in writers.items():
        shard = writer.close()
        if shard is not None:
            write_whole(record_of(folder, source, part, rank), to_json(shard), shared=True)


def _tokenized(texts: Iterable[str], tokenizer: Tokenizer, job: Job) -> Iterator[tuple[str, np.ndarray, int]]:
    """Part, tokens and size of each document. Its hash selects the part, so equal documents are in one part."""
    end, audited = [tokenizer.end_of_document], False
    for batch in _batches(map(sound, texts)):
        for text, tokens in zip(batch, tokenizer.encode(batch), strict=True):
            content = text.encode()
            chance = xxh3_64_intdigest(content)
            if not audited or chance % 2**20 < job.audit * 2**20:
                _audit(tokenizer, text, tokens)
                audited = True
            part = HELD_OUT if (chance >> 20) % 2**20 < job.held_out * 2**20 else TRAIN
            yield part, np.concatenate([tokens, end]), len(content)


def _audit(tokenizer: Tokenizer, text: str, tokens: np.ndarray) -> None:
    expected = next(iter(tokenizer.reference([text])))
    if np.array_equal(tokens, expected):
        return
    least = min(len(tokens), len(expected))
    differ = np.flatnonzero(tokens[:least] != expected[:least])
    place = int(differ[0]) if len(differ) else least
    raise DataError(
        f"the fast tokenizer and the reference disagree from token {place:,} on: {tokens[place : place + 5].tolist()} "
        f"and {expected[place : place + 5].tolist()}, in a document that begins {text[:60]!r}"
    )


def sound(text: str) -> str:
    """The text, with a question mark for every lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size > BATCH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def tokenizer_of(folder: Path, job: Job) -> Tokenizer:
    """The tokenizer of a job: bytes, or the byte-pair encoding that is kept in the corpus."""
    if job.tokenizer == BYTES:
        return ByteTokenizer()
    return BytePairTokenizer(tokenizer_file(folder), job.end_of_document)


def tokenizer_file(folder: Path) -> Path:
    """The file of a corpus's byte-pair encoding."""
    return folder / "tokenizer.json"


def record_of(folder: Path, source: str, part: str, rank: int) -> Path:
    """The file that holds a shard's record until the manifest is written."""
    return folder / ".job" / f"{source}-{part}-{rank:05d}.json"
