"""Where documents end in a shard: a file of uint64, or Megatron's index."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from surefoot.data.pages import MappedFile, check_all
from surefoot.errors import DataError

MEGATRON_MAGIC = b"MMIDIDX\0\0"
MEGATRON_HEADER_BYTES = 34
MEGATRON_DTYPES = {1: "uint8", 4: "int32", 5: "int64", 8: "uint16"}


class IndexEnds:
    """`NAME.ds.index`: one uint64 for each document."""

    def __init__(self, path: Path, digest: str = "") -> None:
        self._file = MappedFile(path, digest)
        if self._file.size % 8:
            raise DataError(f"{path} is damaged: {self._file.size:,} bytes are not a whole number of document ends")
        self._ends = np.frombuffer(self._file.map, "<u8")

    def __len__(self) -> int:
        return len(self._ends)

    def between(self, first: int, end: int) -> np.ndarray:
        """The ends of documents `first` to `end - 1`, in tokens."""
        if self._file.digest and end > first:
            self._file.check([8 * first], 8 * (end - first))
        self._file.whole()
        return self._ends[first:end].astype(np.int64)


class MegatronEnds:
    """`NAME.idx` of Megatron-LM: lengths and offsets of sequences, and which ones begin a document.

    With a digest, the whole file is verified when it is opened.
    """

    def __init__(self, path: Path, digest: str = "") -> None:
        self._file = MappedFile(path, digest)
        for _ in check_all(self._file) if digest else ():
            pass
        self.dtype, sequences, documents = _megatron_header(path, bytes(self._file.bytes[:MEGATRON_HEADER_BYTES]))
        after_lengths = MEGATRON_HEADER_BYTES + 4 * sequences
        needed = after_lengths + 8 * (sequences + documents)
        if documents < 1 or self._file.size < needed:
            raise DataError(f"{path} is cut: its header needs {needed:,} bytes, and it holds {self._file.size:,}")
        self._lengths = np.frombuffer(self._file.map, "<i4", sequences, MEGATRON_HEADER_BYTES)
        self._places = np.frombuffer(self._file.map, "<i8", sequences, after_lengths)
        self._begins = np.frombuffer(self._file.map, "<i8", documents, after_lengths + 8 * sequences)

    def __len__(self) -> int:
        return len(self._begins) - 1

    def between(self, first: int, end: int) -> np.ndarray:
        """The ends of documents `first` to `end - 1`, in tokens."""
        self._file.whole()
        last = self._begins[first + 1 : end + 1] - 1
        ends: np.ndarray = self._places[last] // np.dtype(self.dtype).itemsize + self._lengths[last]
        return ends


def ends_beside(path: Path) -> Path:
    """The file with the document ends of a shard, as datatrove names it."""
    return path.with_name(path.name + ".index")


def ends_file(path: Path) -> Path | None:
    """The file with the document ends of a token file. None if there is none."""
    found = (each for each in (ends_beside(path), path.with_suffix(".idx")) if os.path.lexists(each))
    return next(found, None)


def open_ends(path: Path, digest: str) -> IndexEnds | MegatronEnds:
    """Opens the document ends of a token file."""
    found = ends_file(path)
    if found is not None:
        return IndexEnds(found, digest) if found == ends_beside(path) else MegatronEnds(found, digest)
    raise DataError(
        f"{path} does not say where its documents end; windows do not need it, packing by document does: "
        "tokenise the text again with `surefoot data tokenize`"
    )


def read_megatron_header(path: Path) -> tuple[str, int, int]:
    """The dtype of the tokens, the number of sequences, and the number of document marks."""
    return _megatron_header(path, bytes(MappedFile(path).read(0, MEGATRON_HEADER_BYTES)))


def _megatron_header(path: Path, header: bytes) -> tuple[str, int, int]:
    code = header[17] if len(header) == MEGATRON_HEADER_BYTES else 0
    if header[:9] != MEGATRON_MAGIC or code not in MEGATRON_DTYPES:
        raise DataError(f"{path} is not an index of Megatron-LM: it begins with {header[:18].hex(' ')}")
    sequences, documents = np.frombuffer(header, "<u8", 2, 18).tolist()
    return MEGATRON_DTYPES[code], sequences, documents
