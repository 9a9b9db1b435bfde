"""IDX, the file format of MNIST and Fashion-MNIST: a magic number, the sizes, then the bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from surefoot.errors import RecipeError

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> np.ndarray:
    """The array in an IDX file of unsigned bytes, plain or gzipped."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise RecipeError(f"{path} is not an IDX file of unsigned bytes: it begins with {content[:4].hex(' ')}")
    sizes_end = 4 + 4 * content[3]
    sizes = np.frombuffer(content[4:sizes_end], dtype=">u4").astype(int)
    if len(content) - sizes_end != sizes.prod():
        raise RecipeError(
            f"{path} is cut: its sizes {tuple(sizes.tolist())} need {sizes.prod():,} bytes, "
            f"and it holds {len(content) - sizes_end:,}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=sizes_end).reshape(sizes)


def find_idx(folder: Path, name: str) -> Path:
    """The file `name` in a folder, plain or with `.gz`."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise RecipeError(
        f"no {name} or {name}.gz in {folder}; Debian's package dataset-fashion-mnist has the files, "
        "or download them and name their folder with folder=..."
    )
