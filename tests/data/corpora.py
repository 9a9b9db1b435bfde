"""Small corpora for tests."""

import struct
from pathlib import Path

import numpy as np

from surefoot.data.shards import ShardWriter, smallest_dtype, write_manifest
from surefoot.records.manifest import Manifest


def write_corpus(folder: Path, shards: dict[str, list[np.ndarray]], vocabulary: int = 50_257) -> Manifest:
    """A corpus with a shard for each name; `source.part` names both, `source` a training shard."""
    written = []
    for name, documents in shards.items():
        source, _, part = name.partition(".")
        writer = ShardWriter(folder, name, smallest_dtype(vocabulary), source=source, part=part or "train")
        for document in documents:
            writer.add(document, text_bytes=3 * len(document))
        written.append(writer.close())
    shards_written = tuple(shard for shard in written if shard)
    return write_manifest(folder, Manifest(writer._little.name, vocabulary, "none", vocabulary - 1, shards_written))


def random_documents(count: int, tokens: int, *, vocabulary: int = 50_257, seed: int = 0) -> list[np.ndarray]:
    """Documents of random lengths around `tokens`, each with an end-of-document token."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 2 * tokens, count)
    return [np.append(random.integers(0, vocabulary - 1, length), vocabulary - 1) for length in lengths]


DOCUMENTS = random_documents(20, 100)
STREAM = np.concatenate(DOCUMENTS)


def megatron(folder: Path, dtype: str = "<i4", code: int = 4) -> Path:
    """As Megatron-LM's `IndexedDatasetBuilder` lays it out; each document is two sequences."""
    pieces = [piece for document in DOCUMENTS for piece in (document[:1], document[1:])]
    lengths = np.array([len(piece) for piece in pieces], "<i4")
    places = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * np.dtype(dtype).itemsize
    marks = np.arange(0, len(pieces) + 1, 2)
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(pieces), len(marks))
    (folder / "text.idx").write_bytes(
        header + lengths.tobytes() + places.astype("<i8").tobytes() + marks.astype("<i8").tobytes()
    )
    STREAM.astype(dtype).tofile(folder / "text.bin")
    return folder / "text.bin"
