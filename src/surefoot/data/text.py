"""Text files as byte-level tokens, cut into windows for next-token prediction."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from surefoot.errors import RecipeError

BYTE_VOCABULARY = 256
STANDARD_LIBRARY = "stdlib"


class ByteWindows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Sample `i` is `context` tokens from position `i * context`, and the same shifted by one as targets."""

    draws_randomness = False

    def __init__(self, tokens: np.ndarray, context: int) -> None:
        self.tokens, self.context = tokens, context

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.context
        window = torch.from_numpy(self.tokens[start : start + self.context + 1].astype(np.int64))
        return window[:-1].clone(), window[1:].clone()


def text_source(corpus: str) -> str:
    """Describes a corpus in words."""
    if corpus == STANDARD_LIBRARY:
        return "the Python standard library's own sources, which every machine has"
    return f"the text files in {corpus}"


def byte_windows(corpus: str, context: int) -> ByteWindows:
    """Windows over all text of a folder; `stdlib` is the Python standard library's own sources."""
    folder = Path(sysconfig.get_path("stdlib")) if corpus == STANDARD_LIBRARY else Path(corpus)
    pattern = "*.py" if corpus == STANDARD_LIBRARY else "**/*"
    tokens = np.frombuffer(_read_all(folder, pattern), dtype=np.uint8)
    if len(tokens) <= context:
        raise RecipeError(
            f"{folder} holds {len(tokens):,} bytes of text, and one sample needs {context + 1:,}; "
            "name a folder with more text, or a smaller context"
        )
    return ByteWindows(tokens, context)


def _read_all(folder: Path, pattern: str) -> bytes:
    """The files of a folder, joined in order of name. Files that are not UTF-8 text are skipped."""
    if not folder.is_dir():
        raise RecipeError(f"no folder {folder}; corpus names a folder of text files, or {STANDARD_LIBRARY!r}")
    texts = [path.read_bytes() for path in sorted(folder.glob(pattern)) if path.is_file()]
    return b"\n".join(text for text in texts if _is_text(text))


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in content
