"""The log of a run: one JSON line per step, appended; a torn last line is not a row."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class LogRow:
    """One step: its loss before the update, and what it took."""

    step: int
    loss: float
    grad_norm: float | None
    lr: float
    tokens: int
    seconds: float


def append_row(file: IO[str], row: LogRow) -> None:
    """Writes one row and hands it to the operating system."""
    plain = {field.name: _plain(getattr(row, field.name)) for field in fields(row)}
    file.write(json.dumps(plain, allow_nan=False) + "\n")
    file.flush()


def read_rows(path: Path) -> Iterator[LogRow]:
    """The rows of a log, oldest first. A last line without its end was cut by a crash and is left out."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                plain = json.loads(line)
                yield LogRow(**{**plain, "loss": float(plain["loss"]), "grad_norm": _number(plain["grad_norm"])})


def _plain(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinity: they are written as words, so that no reader takes them for numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)
