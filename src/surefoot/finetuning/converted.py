"""Files of conversations, preferences or texts as a corpus: made once, and kept in a cache by all that it depends on.

The cache is `$SUREFOOT_CACHE`, or `surefoot` in the user's cache folder. Whatever is deleted there is made again.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from xxhash import xxh3_128

from surefoot.data.formats import is_corpus
from surefoot.data.record_files import splits_of
from surefoot.errors import DataError
from surefoot.finetuning.chat_corpus import REPORT, Broken, TooLong, write_chat_corpus

_FORM = 1
"""Counts up if the same files would give another corpus."""
_OF_TOKENIZER = (".json", ".jinja", ".txt", ".model")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Conversion:
    """The settings of a conversion, as `write_chat_corpus` takes them."""

    context: int
    too_long: TooLong
    held_out: float
    broken: Broken


def is_convertible(data: str) -> bool:
    """Whether `data` names files that are neither tokens nor tensors."""
    return bool(data) and Path(data).exists() and not is_corpus(data) and not data.endswith(".safetensors")


def converted(data: str, model: str, how: Conversion) -> Path:
    """The corpus that a file or folder gives. Processes that make it at once get the same one."""
    if not Path(model, "tokenizer.json").is_file() and not Path(model, "tokenizer_config.json").is_file():
        raise DataError(f"{data} must become tokens, and {model} holds no tokenizer; add its tokenizer.json")
    folder = cache() / "corpora" / _key(Path(data), Path(model), f"{_FORM} {how}")
    if (folder / REPORT).is_file():
        return folder
    own = folder.with_name(f"{folder.name}.{os.getpid()}")
    own.parent.mkdir(parents=True, exist_ok=True)
    write_chat_corpus([data], own, model=model, called=data, **asdict(how))
    try:
        os.replace(own, folder)
    except OSError:
        shutil.rmtree(own, ignore_errors=True)  # another process was earlier
        if not (folder / REPORT).is_file():
            raise
    return folder


def cache() -> Path:
    """Where what was made of the user's files is kept."""
    given, usual = os.environ.get("SUREFOOT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path(usual or Path.home() / ".cache") / "surefoot"


def _key(data: Path, model: Path, how: str) -> str:
    """A hash of the files, of the tokenizer and of the settings."""
    seen = xxh3_128(how.encode())
    for split, files in splits_of(data).items():
        for file in files:
            _add(seen, f"{split} {file.name}", file)
    for file in sorted(each for each in model.iterdir() if each.suffix in _OF_TOKENIZER and each.is_file()):
        _add(seen, file.name, file)
    return seen.hexdigest()


def _add(seen: xxh3_128, name: str, file: Path) -> None:
    seen.update(f"\n{name} {file.stat().st_size}\n".encode())
    with open(file, "rb") as opened:
        while part := opened.read(_CHUNK):
            seen.update(part)
