"""Opens tokens that others have written, without converting them: nanoGPT, llm.c, datatrove, Megatron-LM, npy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128

from surefoot.data.ends import ends_beside, open_ends, read_megatron_header
from surefoot.data.hash_tree import PAGE
from surefoot.data.pages import hash_pages
from surefoot.data.shards import Corpus, read_manifest, write_manifest
from surefoot.errors import DataError
from surefoot.records.manifest import ITEM_BYTES, Manifest, Shard

TOKEN_FILES = (".ds", ".bin", ".npy")
_LLM_C_MAGIC = {20240520: "uint16", 20240801: "uint32"}  # llm.c, dev/data/data_common.py
_LLM_C_HEADER_BYTES = 1024


def open_corpus(path: str | Path, *, verify: bool = True, dtype: str = "", vocabulary: int = 0) -> Corpus:
    """The corpus in a folder or a single file.

    A folder with a manifest is surefoot's own. Otherwise every file of tokens in it is a shard: `.ds`, `.bin`
    with or without Megatron's `.idx`, `.npy`. `dtype` says what a file without a header holds (default uint16).
    """
    place = Path(path)
    if (place / "manifest.json").is_file():
        return Corpus(place, read_manifest(place), verify=verify)
    files = [place] if place.is_file() else sorted(each for each in place.glob("*") if each.suffix in TOKEN_FILES)
    if not files:
        raise DataError(
            f"{place} holds no tokens: no manifest.json and no {', '.join(TOKEN_FILES)} file; "
            "`surefoot data tokenize TEXTS --to FOLDER` makes a corpus"
        )
    folder = files[0].parent
    looked = [_look(each, dtype) for each in files]
    if len({kind for kind, _ in looked}) > 1:
        held = ", ".join(f"{shard.file}: {kind}" for kind, shard in looked)
        raise DataError(f"{place} holds tokens of several types, which cannot be one corpus: {held}")
    manifest = Manifest(
        dtype=looked[0][0],
        vocabulary=vocabulary,
        tokenizer="",
        end_of_document=-1,
        shards=tuple(shard for _, shard in looked),
        digest=_fingerprint(files),
    )
    return Corpus(folder, manifest, verify=verify)


def is_corpus(path: str | Path) -> bool:
    """Whether there are tokens in a folder or file, and not text."""
    place = Path(path)
    if place.is_file():
        return place.suffix in TOKEN_FILES
    return (place / "manifest.json").is_file() or any(place.glob("*.ds")) or any(place.glob("*.idx"))


def adopt(path: str | Path, *, dtype: str = "", vocabulary: int = 0) -> Manifest:
    """Writes a manifest and page hashes beside tokens that others have written; their files stay as they are."""
    corpus = open_corpus(path, dtype=dtype, vocabulary=vocabulary)
    hashed = []
    for shard in corpus.manifest.shards:
        ends = ends_beside(corpus.folder / shard.file)
        ends_digest = hash_pages(ends) if ends.exists() else ""
        hashed.append(replace(shard, digest=hash_pages(corpus.folder / shard.file), ends_digest=ends_digest))
    return write_manifest(corpus.folder, replace(corpus.manifest, shards=tuple(hashed)))


def _look(path: Path, dtype: str) -> tuple[Any, Shard]:
    """What a file says of itself: the type of its tokens, and where they are."""
    kind, offset, tokens = _layout(path, dtype)
    if kind not in ITEM_BYTES:
        raise DataError(f"{path} holds {kind}; tokens are read as {', '.join(ITEM_BYTES)}")
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
        raise DataError(f"{path} holds {content:,} bytes, which is no whole number of {kind} tokens")
    return kind, 0, content // size


def _npy_layout(path: Path) -> tuple[str, int, int]:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        offset = file.tell()
    if len(shape) != 1 or dtype.byteorder == ">":
        raise DataError(f"{path} holds an array of shape {shape} and type {dtype.str}; tokens are flat, little-endian")
    return dtype.name, offset, shape[0]


def _datatrove_dtype(path: Path) -> str:
    """datatrove notes `tokenizer|bytes per token` beside a shard; everything else is uint16 until told otherwise."""
    note = path.with_name(path.name + ".metadata")
    wide = note.exists() and note.read_text(encoding="utf-8").split("\n")[0].endswith("|4")
    return "uint32" if wide else "uint16"


def _begins_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _fingerprint(files: list[Path]) -> str:
    """Names, sizes and 64 pages of each: what can be said of files that nobody has hashed."""
    seen = xxh3_128()
    for path in files:
        size = path.stat().st_size
        seen.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for part in range(64):
                file.seek((size - PAGE) * part // 63 if size > PAGE else 0)
                seen.update(file.read(PAGE))
    return seen.hexdigest()
