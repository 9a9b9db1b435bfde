"""The log of a run: one JSON line per step, appended, never rewritten. A replayed step is appended again."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from surefoot.plain_files import open_own
from surefoot.records.codec import read_lines

MOST_SAMPLES = 256
"""A row lists its samples up to this many. It always has their digest."""
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class LogRow:
    """One step: its loss before the update, its data, and its time and memory.

    Python writes floats so that they read back bit for bit. `grad_norm` is before clipping, `clipped_norm` after.
    `updated` is False if the update was skipped. `attempt` counts how often the run resumed from an earlier step on
    purpose: after a rewind, or with a changed recipe. In a watched script, a loss or norm that cannot be observed is
    None.
    """

    step: int
    loss: float | None
    grad_norm: float | None
    clipped_norm: float | None
    lr: float
    tokens: int
    samples: tuple[int, ...] | None
    samples_digest: str
    updated: bool
    seconds: float
    data_seconds: float
    attempt: int = 0
    evaluation_loss: float | None = None
    memory_bytes: int | None = None
    """Memory after the step: on a GPU that of tensors, elsewhere that of the whole process."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The recipe's metrics on its held-out data, if the step was evaluated."""
    train_metrics: dict[str, float] = field(default_factory=dict)
    """The recipe's metrics on the batch of the step, after its update, if they were computed."""
    batch_digest: str = ""
    """The digest of the values in the step's batch. `samples_digest` is that of its sample numbers."""

    def differs_from(self, first: "LogRow") -> list[str]:
        """What differed when the step was replayed: name, first value, second value."""
        return [
            f"{name} {getattr(first, name)!r}, then {getattr(self, name)!r}"
            for name in _REPLAYED
            if repr(getattr(first, name)) != repr(getattr(self, name)) and getattr(first, name) != ""
        ]

    def why_it_differs(self, first: "LogRow") -> str:
        """Whether the data or the arithmetic made the difference."""
        if self.samples_digest != first.samples_digest:
            return "the batch was different: it was made of other samples"
        if self.batch_digest != first.batch_digest:
            return (
                "the batch was different: the same samples had other values; make them from the recipe's seed, "
                "or from random numbers drawn inside `__getitem__` or `collate`"
            )
        return (
            "the batch was the same, so the arithmetic differed: another version or number of threads, another "
            "machine, nondeterministic code (on a GPU, set deterministic=true), state that the model's state_dict does "
            "not hold, or a faulty device"
        )


class _Numbered(Protocol):
    """A row of any log."""

    @property
    def step(self) -> int: ...
    @property
    def attempt(self) -> int: ...


Row = TypeVar("Row", bound=_Numbered)
_REPLAYED = ("loss", "grad_norm", "clipped_norm", "lr", "tokens", "samples_digest", "batch_digest", "updated")


def digest_of(samples: Sequence[int], places: Sequence[int] | None = None) -> int:
    """A number below 2 ** 64 for the samples at these places in a step (default: 0, 1, 2, ...).

    Digests of parts of a step add up to that of the whole step, so ranks need not know each other's samples.
    """
    import numpy as np

    if not samples:
        return 0
    at = np.arange(len(samples)) if places is None else np.asarray(places)
    with np.errstate(over="ignore"):
        mixed = _mix(at.astype(np.uint64) + _mix(np.asarray(samples, np.int64).astype(np.uint64) + np.uint64(_GOLDEN)))
        return int(mixed.sum(dtype=np.uint64))


def _mix(x: Any) -> Any:
    """The finaliser of splitmix64, for numpy arrays."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


def append_row(file: IO[str], row: LogRow) -> None:
    """Writes one row and passes it to the operating system."""
    file.write(line_of(row))
    file.flush()


def line_of(row: LogRow) -> str:
    """A row as a line of the log."""
    # A row is flat, and `to_json`, made for nested records, would take as long as all other work per step.
    plain: dict[str, Any] = {
        name: _word(value) if isinstance(value, float) else value for name, value in vars(row).items()
    }
    for name, metrics in (("metrics", row.metrics), ("train_metrics", row.train_metrics)):
        plain[name] = {key: _word(value) for key, value in metrics.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def read_rows(path: Path) -> Iterator[LogRow]:
    """Every row of a log, oldest first. A last line that a crash cut is skipped."""
    return read_lines(LogRow, path)


def standing(rows: Iterable[Row]) -> list[Row]:
    """One row for each step: its first row in the attempt that counts."""
    kept: dict[int, Row] = {}
    attempt = 0
    for row in rows:
        if row.attempt > attempt:
            attempt = row.attempt
            kept = {step: each for step, each in kept.items() if step < row.step}
        if row.attempt == attempt:
            kept.setdefault(row.step, row)
    return list(kept.values())


def mend(path: Path) -> None:
    """Removes an incomplete last line that a crash left, so that the next row starts a new line."""
    if not os.path.lexists(path):
        return
    with open(open_own(path, os.O_RDWR), "rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            file.truncate(whole)
            os.fsync(file.fileno())


def _word(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
