"""The inputs of a prediction: the lines of a JSON file, or the files of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surefoot.errors import DataError
from surefoot.records.codec import parse


def items_of(inputs: str) -> Iterator[tuple[str, Any]]:
    """Each input with its name: the number of its line and its JSON value, or a file's name and its path."""
    place = Path(inputs)
    if place.is_dir():
        files = sorted(each for each in place.iterdir() if each.is_file() and not each.name.startswith("."))
        if not files:
            raise DataError(f"{inputs} holds no files; name a folder with one file for each input, or a .jsonl file")
        return ((each.name, each) for each in files)
    if not place.is_file():
        raise DataError(f"there is no file or folder {inputs}; name a .jsonl file, or a folder of files")
    return _lines(place)


def _lines(file: Path) -> Iterator[tuple[str, Any]]:
    with open(file, "rb") as opened:
        for number, line in enumerate(opened, start=1):
            if line.strip():
                try:
                    yield str(number), parse(line)
                except ValueError as error:
                    raise DataError(f"{file}, line {number}: {error}; each line must be one JSON value") from error
