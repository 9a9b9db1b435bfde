"""Rows of files as people have them: JSON lines, a JSON list, Parquet, Arrow, or a folder that `datasets` saved.

The first bytes of a file say what it is, not its name. Nothing in it is executed. Parquet and Arrow need pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from surefoot.errors import DataError, installing
from surefoot.plain_files import inside
from surefoot.records.codec import parse, read_plain_file
from surefoot.records.manifest import TRAIN

HELD_OUT_NAMES = ("validation", "valid", "val", "dev", "eval", "test")
"""The splits that are held out: the first of these that there is."""
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".arrow")
_NOTES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_SPLIT = re.compile(rf"(?:^|[-_./])({TRAIN}|{'|'.join(HELD_OUT_NAMES)})(?=[-_./0-9]|$)")
_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ROWS = 256
"""How many rows of Parquet or Arrow become Python objects at once."""


class Place(NamedTuple):
    """Where a row stands."""

    file: Path
    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"

    @property
    def in_words(self) -> str:
        return f"{self.file}, {self.kind} {self.number}"


Row = tuple[Place, Any]
"""A row with its place. A line that is no JSON is a `DataError`: the caller raises it, or counts it."""


def splits_of(path: Path) -> dict[str, list[Path]]:
    """The files of each split. A single file is the split `train`."""
    if path.is_file():
        return {TRAIN: [path]}
    if not path.is_dir():
        raise DataError(f"there is no file {path}")
    if (path / "dataset_dict.json").is_file():
        return {str(name): _saved(_inside(path, name)) for name in _note(path / "dataset_dict.json", "splits")}
    if (path / "state.json").is_file():
        return {TRAIN: _saved(path)}
    found = dict[str, list[Path]]()
    named_so = (each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.name not in _NOTES)
    for file in sorted(each for each in named_so if each.is_file()):  # not a folder or a pipe of such a name
        named = _SPLIT.search(str(file.relative_to(path)).lower())
        found.setdefault(named[1] if named else TRAIN, []).append(file)
    if not found:
        raise DataError(f"{path} holds no {', '.join(_SUFFIXES)} file and no data set that `datasets` saved")
    return found


def rows_of(file: Path) -> Iterator[Row]:
    """The rows of a file, in their order."""
    with open(file, "rb") as opened:
        begin = opened.read(64)
    if packed := next((name for magic, name in _PACKED.items() if begin.startswith(magic)), None):
        raise DataError(f"{file} is compressed ({packed}): unpack it first")
    if begin.startswith((_PARQUET, _ARROW_FILE, _ARROW_STREAM)):
        return _arrow_rows(file, begin)
    if begin.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"["):
        return _list_items(file)
    return _lines(file)


def _lines(file: Path) -> Iterator[Row]:
    with open(file, "rb") as opened:
        for number, line in enumerate(opened, start=1):
            content = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            if not content.strip():
                continue
            try:
                value = parse(content)
            except ValueError as problem:
                value = DataError(f"{problem}; each line must be one JSON value")
            yield Place(file, "line", number), value


def _list_items(file: Path) -> Iterator[Row]:
    try:
        found = parse(file.read_bytes().removeprefix(_BYTE_ORDER_MARK))
    except ValueError as problem:
        lines = list(_lines(file))  # lines that are lists themselves are told apart here
        if lines and not any(isinstance(value, DataError) for _, value in lines):
            yield from lines
            return
        raise DataError(f"{file}: {problem}; a file that begins with [ must be one JSON list") from problem
    yield from ((Place(file, "item", number), value) for number, value in enumerate(found, start=1))


# ---------------------------------------------------------------------------------------- Parquet and Arrow


def _saved(folder: Path) -> list[Path]:
    """The files of a data set that `datasets` saved, as its own note names them."""
    named = _note(folder / "state.json", "_data_files")
    files = [_inside(folder, each.get("filename") if isinstance(each, dict) else None) for each in named]
    if missing := next((each for each in files if not each.is_file()), None):
        raise DataError(f"{folder / 'state.json'} names {missing.name}, which is missing: copy the folder again")
    return files


def _inside(folder: Path, name: Any) -> Path:
    try:
        return inside(folder, name)
    except OSError as problem:
        raise DataError(f"{folder}: {problem.strerror}: {name!r}") from problem


def _note(file: Path, name: str) -> list[Any]:
    try:
        found = parse(read_plain_file(file, error=DataError))[name]
    except (ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{file} is no note of a data set that `datasets` saved: {problem}") from problem
    return list(found)


def _arrow_rows(file: Path, begin: bytes) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what = "Parquet" if begin.startswith(_PARQUET) else "Arrow"
        raise DataError(f"{file} is a {what} file, which needs pyarrow: {installing('arrow', 'pyarrow')}") from error
    number = 0
    with _damage_named(file, pyarrow.ArrowException):
        for batch in _batches(file, begin, pyarrow):
            for first in range(0, batch.num_rows, _ROWS):
                for row in batch.slice(first, _ROWS).to_pylist():
                    number += 1
                    yield Place(file, "row", number), {name: _without_null(value) for name, value in row.items()}


def _batches(file: Path, begin: bytes, pyarrow: Any) -> Iterator[Any]:
    if begin.startswith(_PARQUET):
        yield from pyarrow.parquet.ParquetFile(file).iter_batches(_ROWS)
        return
    with pyarrow.memory_map(str(file)) as mapped:
        if begin.startswith(_ARROW_FILE):
            opened = pyarrow.ipc.open_file(mapped)
            yield from map(opened.get_batch, range(opened.num_record_batches))
            return
        if mapped.size() < len(_STREAM_END) or mapped.read_at(len(_STREAM_END), mapped.size() - 8) != _STREAM_END:
            raise pyarrow.ArrowInvalid("it ends before its last batch")  # pyarrow reads what is there, and says nothing
        yield from pyarrow.ipc.open_stream(mapped)


@contextmanager
def _damage_named(file: Path, damage: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (damage, OSError, UnicodeDecodeError) as problem:
        why = str(problem).strip().partition("\n")[0]
        raise DataError(f"{file} is damaged or was cut off: {why}; copy it again") from problem


def _without_null(value: Any) -> Any:
    """A value without the keys that are null: Arrow gives every row the keys that any row has."""
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value
