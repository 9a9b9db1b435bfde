"""The inputs of a prediction: the lines of a JSON file, or the files of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surefoot.errors import DataError
from surefoot.records.codec import json_lines


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
    return ((str(number), value) for number, value in json_lines(place, error=DataError))
