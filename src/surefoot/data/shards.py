"""A corpus: shards of little-endian tokens, the ends of their documents, and a manifest that verifies every bit.

    corpus/manifest.json           what it holds
    corpus/NAME.ds                 tokens, flat
    corpus/NAME.ds.index           where each document ends, in tokens, as uint64
    corpus/*.pages                 the page hashes of both
    corpus/tokenizer.json          the tokenizer, for byte-pair encodings

Tokens and ends have datatrove's layout and names, so each tool reads the other's files without conversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xxhash import xxh3_128_hexdigest

from surefoot.data.document_ends import IndexEnds, MegatronEnds, ends_beside, ends_file, open_ends
from surefoot.data.pages import MappedFile, PagedFile, PagedWriter, ReadFile
from surefoot.errors import DataError
from surefoot.hardware.host import most_open_files
from surefoot.plain_files import inside, read_plain, write_whole
from surefoot.records.codec import from_json, to_json
from surefoot.records.manifest import ITEM_BYTES, TRAIN, Manifest, Shard

MAPPED_BYTES = 64 << 30
"""A corpus up to this size is mapped; its page tables take up to 1/512 of it. A larger one is read."""
OPEN_SHARDS = 16_384  # the kernel allows a process 65,530 maps, and a shard takes two


class Corpus:
    """Shards of tokens, opened when they are first read. Every page that is read is verified if `verify` is on."""

    def __init__(self, folder: Path, manifest: Manifest, *, verify: bool = True) -> None:
        self.folder, self.manifest = folder, manifest
        self.verified = verify and manifest.hashed
        self.item_bytes = ITEM_BYTES[manifest.dtype]
        self.mapped = manifest.tokens * self.item_bytes <= MAPPED_BYTES
        self._little = np.dtype(manifest.dtype).newbyteorder("<")
        kind = MappedFile if self.mapped else ReadFile
        self._open = partial(_open_tokens, folder, manifest, kind, self.verified)
        self._tokens = lru_cache(open_shards())(self._open)
        self._ends = lru_cache(16)(partial(_open_ends, folder, manifest, self.verified))  # they are read in order

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and worker processes open the files themselves."""
        return partial(Corpus, verify=self.verified), (self.folder, self.manifest)

    def tokens(self, shard: int, first: int, count: int) -> np.ndarray:
        """Verified tokens of a shard, in the dtype on disk."""
        file, offset = self._tokens(shard)
        return np.frombuffer(file.read(offset + first * self.item_bytes, count * self.item_bytes), self._little)

    def rows(self, shard: int, stride: int, length: int) -> Rows:
        """A shard of a mapped corpus as rows of `length` tokens, one every `stride`."""
        file, offset = self._tokens(shard)
        assert isinstance(file, MappedFile)
        tokens = np.frombuffer(file.map, self._little, self.manifest.shards[shard].tokens, offset)
        shape, strides = ((len(tokens) - length) // stride + 1, length), (stride * self.item_bytes, self.item_bytes)
        return Rows(file, as_strided(tokens, shape, strides, writeable=False), offset)

    def ends(self, shard: int, first: int = 0, count: int | None = None) -> np.ndarray:
        """The document ends of a shard, in tokens from its beginning."""
        found = self._ends(shard)
        end = len(found) if count is None else min(first + count, len(found))
        return found.between(first, end)

    def advise(self, shard: int, first: int, count: int) -> None:
        """Asks the kernel to read these tokens ahead."""
        file, offset = self._tokens(shard)
        file.advise(offset + first * self.item_bytes, count * self.item_bytes)

    def files(self) -> Iterator[PagedFile]:
        """Opens every file that has page hashes, one after the other."""
        for number, shard in enumerate(self.manifest.shards):
            if shard.digest:
                yield self._open(number)[0]
            if shard.ends_digest:
                path = shard_file(self.folder, shard)
                yield ReadFile(ends_file(path) or ends_beside(path), shard.ends_digest)

    def only(self, part: str = "", *sources: str) -> Corpus:
        """The same corpus, limited to the shards of a part and of some sources."""
        return Corpus(self.folder, self.manifest.only(part, sources), verify=self.verified)

    def identity(self) -> str:
        """A digest of the manifest, and so of every token. Without hashes, it covers only a sample of tokens.

        Reads the first page of each shard. Raises if a shard is missing, truncated or replaced.
        """
        for number in range(len(self.manifest.shards)):
            self.tokens(number, 0, 1)
        return xxh3_128_hexdigest(to_json(self.manifest).encode())


class Rows:
    """Rows of tokens in a map, gathered with one copy."""

    def __init__(self, file: MappedFile, tokens: np.ndarray, offset: int) -> None:
        self._file, self._tokens, self._offset = file, tokens, offset

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        """Some rows, verified."""
        if not self._file.digest:
            self._file.whole()
        else:
            firsts = numbers * self._tokens.strides[0] + self._offset
            self._file.check(firsts.tolist(), self._tokens.shape[1] * self._tokens.itemsize)
        gathered: np.ndarray = self._tokens[numbers]
        return gathered


def _open_tokens(
    folder: Path, manifest: Manifest, kind: type[PagedFile], verified: bool, number: int
) -> tuple[PagedFile, int]:
    """The file of a shard, and the byte of its first token."""
    shard, item_bytes = manifest.shards[number], ITEM_BYTES[manifest.dtype]
    file = kind(shard_file(folder, shard), shard.digest if verified else "")
    needed = shard.offset + shard.tokens * item_bytes
    if file.size < needed:
        raise DataError(
            f"{file.path} is cut: {shard.tokens:,} tokens of {item_bytes} bytes need {needed:,} bytes, "
            f"and it holds {file.size:,}"
        )
    return file, shard.offset


def _open_ends(folder: Path, manifest: Manifest, verified: bool, number: int) -> IndexEnds | MegatronEnds:
    shard = manifest.shards[number]
    return open_ends(shard_file(folder, shard), shard.ends_digest if verified else "")


def shard_file(folder: Path, shard: Shard) -> Path:
    """The file of a shard. It must be in the folder of its manifest."""
    try:
        return inside(folder, shard.file)
    except OSError as error:
        raise DataError(f"{folder} names a file {shard.file!r}, which {error.strerror}") from error


class ShardWriter:
    """Writes the documents of one shard. Its files get their names in `close`."""

    def __init__(self, folder: Path, name: str, dtype: str, *, source: str = "text", part: str = TRAIN) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.ds"
        self.source, self.part = source, part
        self._little = np.dtype(dtype).newbyteorder("<")
        self._tokens, self._ends = PagedWriter(self.path), PagedWriter(ends_beside(self.path))
        self._written = self._documents = self._text_bytes = 0

    def add(self, tokens: np.ndarray, text_bytes: int = 0) -> None:
        """Appends the tokens of a document, with its end-of-document token if it has one."""
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() <= np.iinfo(self._little).max:
            raise DataError(f"{self.path}: token {tokens.max()} (or {tokens.min()}) does not fit {self._little.name}")
        self._written += len(tokens)
        self._documents += 1
        self._text_bytes += text_bytes
        self._tokens.write(tokens.astype(self._little).tobytes())
        self._ends.write(self._written.to_bytes(8, "little"))

    def close(self) -> Shard | None:
        """Completes the shard on disk. Returns None and writes nothing if it has no tokens."""
        if not self._written:
            self.discard()
            return None
        return Shard(
            file=self.path.name,
            tokens=self._written,
            documents=self._documents,
            text_bytes=self._text_bytes,
            source=self.source,
            part=self.part,
            ends_digest=self._ends.close(),
            digest=self._tokens.close(),
        )

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._tokens.discard()
        self._ends.discard()


def open_shards() -> int:
    """How many shards are kept open. With two files each, they use half of the process's limit."""
    return min(OPEN_SHARDS, max(16, (most_open_files() or 512) // 4))


def smallest_dtype(vocabulary: int) -> str:
    """The smallest dtype that holds the tokens of a vocabulary."""
    return "uint16" if vocabulary <= 2**16 else "uint32"


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Writes `manifest.json`, whole or not at all, with its own digest."""
    sealed = replace(manifest, digest=manifest_digest(manifest))
    write_whole(folder / "manifest.json", to_json(sealed) + "\n", shared=True)
    return sealed


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus. Raises if it is missing, damaged or changed."""
    path = folder / "manifest.json"
    try:
        manifest = from_json(Manifest, read_plain(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if manifest.digest != manifest_digest(manifest):
        raise DataError(f"{path} is damaged or was changed by hand: it does not match its own digest")
    for shard in manifest.shards:
        _refuse_unsound(path, shard)
    return manifest


def _refuse_unsound(path: Path, shard: Shard) -> None:
    """Raises if a shard is outside of the folder, has impossible counts, or cannot be verified."""
    shard_file(path.parent, shard)
    counts = (shard.tokens, shard.documents, shard.text_bytes, shard.offset)
    if shard.tokens < 1 or min(counts) < 0 or max(counts) >= 2**63:
        raise DataError(f"{path} describes {shard.file} with impossible numbers: {shard}")
    missing = [] if shard.digest else ["digest"]
    if shard.documents and not shard.ends_digest:
        missing.append("ends_digest")
    if missing:
        raise DataError(
            f"{path} has no {' and no '.join(missing)} for {shard.file}, so it cannot be verified; restore the "
            "manifest, or remove it and let `surefoot data verify FOLDER --adopt` hash the files as they are"
        )


def manifest_digest(manifest: Manifest) -> str:
    """A digest of all fields of a manifest except its own digest."""
    return xxh3_128_hexdigest(to_json(replace(manifest, digest="")).encode())
