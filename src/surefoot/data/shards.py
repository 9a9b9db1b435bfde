"""A corpus: shards of little-endian tokens, the ends of their documents, and a manifest that fixes every bit.

    corpus/manifest.json           what it holds
    corpus/NAME.ds                 tokens, flat
    corpus/NAME.ds.index           where each document ends, in tokens, as uint64
    corpus/*.pages                 the page hashes of both
    corpus/tokenizer.json          for byte-pair encodings, what made the tokens

Tokens and ends are laid out and named as datatrove does it, so each reads the other's without conversion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from xxhash import xxh3_128_hexdigest

from surefoot.data.ends import IndexEnds, MegatronEnds, ends_beside, open_ends
from surefoot.data.pages import PagedFile, PagedWriter
from surefoot.errors import DataError
from surefoot.records.codec import from_json, to_json
from surefoot.records.files import write_whole
from surefoot.records.manifest import ITEM_BYTES, TRAIN, Manifest, Shard

OPEN_SHARDS = 16_384  # the kernel allows a process 65,530 maps, and a shard takes up to four


class Corpus:
    """Shards of tokens, opened when they are first read. Every page that is read is verified, unless told not to."""

    def __init__(self, folder: Path, manifest: Manifest, *, verify: bool = True) -> None:
        self.folder, self.manifest = folder, manifest
        self.verified = verify and manifest.hashed
        self.item_bytes = ITEM_BYTES[manifest.dtype]
        self._tokens = lru_cache(OPEN_SHARDS)(self._open_tokens)
        self._ends = lru_cache(OPEN_SHARDS)(self._open_ends)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and worker processes open the files themselves."""
        return partial(Corpus, verify=self.verified), (self.folder, self.manifest)

    def tokens(self, shard: int, first: int, count: int) -> np.ndarray:
        """Verified tokens of a shard, as they are on disk: a view, not a copy."""
        file, tokens, offset = self._tokens(shard)
        if self.verified:
            file.check((offset + first * self.item_bytes,), count * self.item_bytes)
        return tokens[first : first + count]

    def check(self, shard: int, firsts: Iterable[int], count: int) -> None:
        """Verifies the pages that hold `count` tokens from each of `firsts`; nothing where nothing is hashed."""
        if self.verified:
            file, _, offset = self._tokens(shard)
            size = self.item_bytes
            file.check([offset + first * size for first in firsts], count * size)

    def windows(self, shard: int, stride: int, length: int) -> np.ndarray:
        """A shard as rows of `length` tokens, one every `stride`: a view, not verified."""
        tokens = self._tokens(shard)[1]
        rows = (len(tokens) - length) // stride + 1
        return as_strided(tokens, (rows, length), (stride * self.item_bytes, self.item_bytes), writeable=False)

    def ends(self, shard: int, first: int = 0, count: int | None = None) -> np.ndarray:
        """Where documents of a shard end, in tokens from its beginning."""
        found = self._ends(shard)
        end = len(found) if count is None else min(first + count, len(found))
        return found.between(first, end)

    def advise(self, shard: int, first: int, count: int) -> None:
        """Tells the kernel which tokens are needed soon."""
        file, _, offset = self._tokens(shard)
        start = offset + first * self.item_bytes
        file.advise(start, start + count * self.item_bytes)

    def files(self) -> Iterator[PagedFile]:
        """Every file that carries page hashes, opened one after the other."""
        for number, shard in enumerate(self.manifest.shards):
            if shard.digest:
                yield self._open_tokens(number)[0]
            if shard.ends_digest:
                yield PagedFile(ends_beside(self.folder / shard.file), shard.ends_digest)

    def only(self, part: str = "", *sources: str) -> Corpus:
        """The same corpus, of which only the shards of a part and of some sources are seen."""
        return Corpus(self.folder, self.manifest.only(part, sources), verify=self.verified)

    def identity(self) -> str:
        """A digest of the manifest, and through it of every token; where nothing is hashed, of a sample of them."""
        return xxh3_128_hexdigest(to_json(self.manifest).encode())

    def _open_tokens(self, number: int) -> tuple[PagedFile, np.ndarray, int]:
        shard = self.manifest.shards[number]
        file = PagedFile(self.folder / shard.file, shard.digest if self.verified else "")
        needed = shard.offset + shard.tokens * self.item_bytes
        if len(file.bytes) < needed:
            raise DataError(
                f"{file.path} is cut: {shard.tokens:,} tokens of {self.item_bytes} bytes need {needed:,} bytes, "
                f"it holds {len(file.bytes):,}"
            )
        little = np.dtype(self.manifest.dtype).newbyteorder("<")
        return file, np.frombuffer(file.map, little, shard.tokens, shard.offset), shard.offset

    def _open_ends(self, number: int) -> IndexEnds | MegatronEnds:
        shard = self.manifest.shards[number]
        return open_ends(self.folder / shard.file, shard.ends_digest if self.verified else "")


class ShardWriter:
    """Writes the documents of one shard; nothing has its name before `close`."""

    def __init__(self, folder: Path, name: str, dtype: str, *, source: str = "text", part: str = TRAIN) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.ds"
        self.source, self.part = source, part
        self._little = np.dtype(dtype).newbyteorder("<")
        self._tokens, self._ends = PagedWriter(self.path), PagedWriter(ends_beside(self.path))
        self._written = self._documents = self._text_bytes = 0

    def add(self, tokens: np.ndarray, text_bytes: int = 0) -> None:
        """Appends a document, with its end-of-document token if it is to have one."""
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() <= np.iinfo(self._little).max:
            raise DataError(f"{self.path}: token {tokens.max()} (or {tokens.min()}) does not fit {self._little.name}")
        self._written += len(tokens)
        self._documents += 1
        self._text_bytes += text_bytes
        self._tokens.write(tokens.astype(self._little).tobytes())
        self._ends.write(self._written.to_bytes(8, "little"))

    def close(self) -> Shard | None:
        """Puts the shard on disk, whole. A shard without tokens is no shard."""
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


def smallest_dtype(vocabulary: int) -> str:
    """What a token of a vocabulary is stored in."""
    return "uint16" if vocabulary <= 2**16 else "uint32"


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Writes `manifest.json` whole or not at all, with its own digest in it."""
    sealed = replace(manifest, digest=manifest_digest(manifest))
    write_whole(folder / "manifest.json", to_json(sealed) + "\n")
    return sealed


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus, if it is as it was written."""
    path = folder / "manifest.json"
    try:
        manifest = from_json(Manifest, path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise DataError(f"{path} is not a manifest: {error}") from error
    if manifest.digest != manifest_digest(manifest):
        raise DataError(f"{path} was changed by hand or is damaged: it does not have the digest it names")
    return manifest


def manifest_digest(manifest: Manifest) -> str:
    """A digest of everything a manifest says."""
    return xxh3_128_hexdigest(to_json(replace(manifest, digest="")).encode())
