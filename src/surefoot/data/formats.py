"""Opens token files of other tools without converting them: nanoGPT, llm.c, datatrove, Megatron-LM, npy."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128

from surefoot.data.document_ends import ends_file, open_ends, read_megatron_header
from surefoot.data.hash_tree import PAGE, SUFFIX
from surefoot.data.pages import hash_pages
from surefoot.data.shards import Corpus, read_manifest, write_manifest
from surefoot.errors import DataError
from surefoot.plain_files import open_plain
from surefoot.records.manifest import ITEM_BYTES, Manifest, Shard

MANIFEST = "manifest.json"
TOKEN_FILES = (".ds", ".bin", ".npy")
_LLM_C_MAGIC = {20240520: "uint16", 20240801: "uint32"}  # llm.c, dev/data/data_common.py
_LLM_C_HEADER_BYTES = 1024
_STORED = 16
"""A file that is so many times larger than its stored blocks has holes: tokens cannot be compressed so well."""


def open_corpus(path: str | Path, *, verify: bool = True, dtype: str = "", vocabulary: int = 0) -> Corpus:
    """The corpus in a folder, or a single file of tokens.

    A folder needs a manifest, which names the held-out part and the hash of every page. A file that no manifest next
    to it names is read without verification, with a warning: `.ds`, `.bin` with or without Megatron's `.idx`, `.npy`.
    `dtype` is the type of the tokens in a file without a header (default uint16).
    """
    place = Path(path)
    if os.path.lexists(place / MANIFEST):
        return Corpus(place, read_manifest(place), verify=verify)
    if not place.is_file():
        raise DataError(_no_corpus(place))
    place = place.resolve()
    known = read_manifest(place.parent) if os.path.lexists(place.parent / MANIFEST) else None
    shards = tuple(shard for shard in known.shards if shard.file == place.name) if known else ()
    if known is not None and shards:
        return Corpus(place.parent, replace(known, shards=shards), verify=verify)
    if verify:
        warnings.warn(
            f"{place} is read without verification: it has no hashes; `surefoot data verify {place} --adopt` adds them",
            stacklevel=2,
        )
    return Corpus(place.parent, _as_it_is([place], dtype, vocabulary), verify=False)


def is_corpus(path: str | Path) -> bool:
    """Whether a folder or file holds tokens, not text. A corpus without its manifest counts too."""
    place = Path(path)
    if place.is_file():
        return place.suffix in TOKEN_FILES
    return os.path.lexists(place / MANIFEST) or any(any(place.glob(f"*{each}")) for each in (".ds", ".idx", SUFFIX))


def adopt(path: str | Path, *, dtype: str = "", vocabulary: int = 0) -> Manifest:
    """Writes a manifest and page hashes next to token files of other tools. Does not change those files."""
    place = Path(path).resolve()
    folder = place.parent if place.is_file() else place
    if os.path.lexists(folder / MANIFEST):
        raise DataError(
            f"{folder} has a manifest: `surefoot data verify {folder}` compares the files with it; to hash the files "
            f"as they are now, remove {MANIFEST} first"
        )
    if (folder / ".job").is_dir():
        raise DataError(
            f"{folder} was made by `surefoot data tokenize` and has lost its manifest, which says what is held out; "
            "run the same command again: it writes the manifest and tokenises nothing twice"
        )
    files = [place] if place.is_file() else _token_files(place)
    if not files:
        raise DataError(_no_corpus(place))
    for each in files:
        _refuse_holes(each)
    manifest, hashed = _as_it_is(files, dtype, vocabulary), []
    for shard in manifest.shards:
        ends = ends_file(folder / shard.file) if shard.documents else None
        ends_digest = hash_pages(ends) if ends is not None else ""
        hashed.append(replace(shard, digest=hash_pages(folder / shard.file), ends_digest=ends_digest))
    return write_manifest(folder, replace(manifest, shards=tuple(hashed)))


def _token_files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob("*") if each.suffix in TOKEN_FILES)


def _no_corpus(place: Path) -> str:
    """An error message: why a place is no corpus, and what to do."""
    if not place.is_dir() or not _token_files(place):
        return (
            f"{place} holds no tokens: no {MANIFEST} and no {', '.join(TOKEN_FILES)} file; "
            "`surefoot data tokenize TEXTS --to FOLDER` makes a corpus"
        )
    if (place / ".job").is_dir():
        return (
            f"{place} has lost its {MANIFEST}, without which nothing can be verified and held-out text would be "
            "trained on; restore it, or run the same `surefoot data tokenize` again: it tokenises nothing twice"
        )
    return (
        f"{place} has no {MANIFEST}, so nothing says which files to train on and what they held when they were "
        f"written; `surefoot data verify {place} --adopt` makes one for all of them, or name one file"
    )


def _as_it_is(files: list[Path], dtype: str, vocabulary: int) -> Manifest:
    """A manifest made from the headers of token files."""
    for each in files:
        _refuse_other_kinds(each)
    looked = [_look(each, dtype) for each in files]
    if len({kind for kind, _ in looked}) > 1:
        held = ", ".join(f"{shard.file}: {kind}" for kind, shard in looked)
        raise DataError(f"{files[0].parent} holds tokens of several types, which cannot be one corpus: {held}")
    return Manifest(
        dtype=looked[0][0],
        vocabulary=vocabulary,
        tokenizer="",
        end_of_document=-1,
        shards=tuple(shard for _, shard in looked),
        digest=_fingerprint(files),
    )


def _refuse_other_kinds(path: Path) -> None:
    """Raises if a folder, link or pipe has the name of a token file or of its document ends."""
    for each in (path, ends_file(path)):
        try:
            if each is not None:
                os.close(open_plain(each))
        except OSError as error:
            raise DataError(f"{each} {error.strerror}") from error


def _refuse_holes(path: Path) -> None:
    """Raises if most of a file is not stored: an interrupted copy, or a file that was only allocated."""
    found = path.stat()
    stored = found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size
    if stored * _STORED < found.st_size:
        raise DataError(
            f"{path} has holes: {stored:,} of its {found.st_size:,} bytes are stored, the rest would be read as zeros; "
            "copy it again"
        )


def _look(path: Path, dtype: str) -> tuple[Any, Shard]:
    """The type of a file's tokens, and its shard record."""
    kind, offset, tokens = _layout(path, dtype)
    if kind not in ITEM_BYTES:
        raise DataError(f"{path} holds {kind}; surefoot reads tokens as {', '.join(ITEM_BYTES)}")
    try:
        documents = len(open_ends(path, ""))
    except DataError:
        documents = 0
    if tokens < 1:
        raise DataError(f"{path} holds no token")
    return kind, Shard(path.name, tokens, documents=documents, offset=offset)


def _layout(path: Path, dtype: str) -> tuple[str, int, int]:
    """The type of a file's tokens, the byte of the first, and their number."""
    content = path.stat().st_size
    if path.suffix == ".npy" and _begins_with(path, b"\x93NUMPY"):
        return _npy_layout(path)
    if path.suffix == ".bin" and path.with_suffix(".idx").exists():
        kind, _, _ = read_megatron_header(path.with_suffix(".idx"))
        return kind, 0, content // ITEM_BYTES[kind]
    header = np.fromfile(path, "<i4", 3) if path.suffix == ".bin" and content >= _LLM_C_HEADER_BYTES else np.zeros(3)
    if int(header[0]) in _LLM_C_MAGIC:
        return _LLM_C_MAGIC[int(header[0])], _LLM_C_HEADER_BYTES, int(header[2])
    kind = dtype or _datatrove_dtype(path)
    size = ITEM_BYTES.get(kind)
    if size is None or content % size:
        raise DataError(f"{path} holds {content:,} bytes, which is not a whole number of {kind} tokens")
    return kind, 0, content // size


def _npy_layout(path: Path) -> tuple[str, int, int]:
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        except ValueError as error:
            raise DataError(f"{path} has no array header: {error}") from error
        offset = file.tell()
    if len(shape) != 1 or dtype.byteorder == ">":
        raise DataError(
            f"{path} holds an array of shape {shape} and type {dtype.str}; tokens must be flat and little-endian"
        )
    return dtype.name, offset, shape[0]


def _datatrove_dtype(path: Path) -> str:
    """datatrove writes `tokenizer|bytes per token` next to a shard. Without that note, tokens are uint16."""
    note = path.with_name(path.name + ".metadata")
    wide = note.is_file() and note.read_bytes().split(b"\n")[0].endswith(b"|4")
    return "uint32" if wide else "uint16"


def _begins_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _fingerprint(files: list[Path]) -> str:
    """A digest of names, sizes and 64 pages of each file, for files without hashes."""
    seen = xxh3_128()
    for path in files:
        size = path.stat().st_size
        seen.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for part in range(64):
                file.seek((size - PAGE) * part // 63 if size > PAGE else 0)
                seen.update(file.read(PAGE))
    return seen.hexdigest()
