"""The validation of a device: recipes of graded size, planned and measured, and what fits there.

It names the device and the versions, and nothing else about the machine: no path, no host, no user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from surefoot.plain_files import make_folder, write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.ledger import Entry, Ledger

FILE = "validation.json"
PAGE = "validation.html"
MEMORY, SECONDS = "allocated/peak", "step/seconds"
"""The accounts that sum up a row: the peak of a steady step, and its seconds."""


@dataclass(frozen=True)
class Machine:
    """What the recipes ran on."""

    device: str
    """The driver's name of the GPU, or the model of the CPU."""
    kind: str
    """`cuda`, `cpu`, or torch's word for another accelerator."""
    count: int
    """GPUs, or cores of a CPU."""
    memory_bytes: int
    capability: str = ""
    datasheet: str = ""
    """The name that plans have for it: `h100-sxm`. Empty if none is certain."""
    reached_flops: dict[str, float] = field(default_factory=dict)
    """The fastest matrix product by number format, if it was measured."""
    memory_bandwidth: float = 0.0
    """Bytes per second, if it was measured."""
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """What changes memory or speed: threads, the precision of float32 products, the allocator."""


@dataclass(frozen=True)
class Part:
    """A part of the preflight: something that everything else needs, tried once on the device."""

    name: str
    status: Literal["ok", "failed", "not run"]
    said: str = ""
    """What it found, why it failed, or why it did not run."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Parts:
    """What a process has tried so far, written before and after each part: it shows where a process ended."""

    done: tuple[Part, ...] = ()
    now: str = ""
    """The part that is being tried."""


@dataclass(frozen=True)
class Row:
    """One recipe: planned, then measured in a process of its own."""

    name: str
    recipe: str
    words: tuple[str, ...]
    """Its knobs, as a command line has them."""
    status: Literal["measured", "failed", "skipped"]
    reason: str = ""
    """Why it failed or was skipped, or what could not be measured."""
    ranks: int = 1
    parameters: int = 0
    tokens_per_step: int = 0
    unit: str = "token"
    seconds: float = 0.0
    """How long this row took, from the start of its process to its end."""
    ledger: Ledger = Ledger()
    step_seconds: tuple[float, ...] = ()
    mfu_planned: float | None = None
    mfu: float | None = None
    """Share of the datasheet's dense peak. On a CPU, of the fastest matrix product."""

    def entry(self, account: str) -> Entry | None:
        """The account of this name, if it is in the ledger."""
        return next((entry for entry in self.ledger.entries if entry.account == account), None)

    def error(self, account: str) -> float | None:
        """How far the prediction is off, as a share of the measurement. Positive if it is too high."""
        entry = self.entry(account)
        if entry is None or entry.predicted is None or not entry.measured:
            return None
        return entry.predicted / entry.measured - 1


@dataclass(frozen=True)
class WhatFits:
    """The answer of a search: the largest micro-batch of a model on this device, or why there is none."""

    model: str
    answer: str
    command: str = ""


@dataclass(frozen=True)
class Validation:
    """Everything that `surefoot validate` found on one machine."""

    machine: Machine
    date: str
    minutes: float
    """How long it was allowed to take."""
    rows: tuple[Row, ...] = ()
    fits: tuple[WhatFits, ...] = ()
    preflight: tuple[Part, ...] = ()

    @property
    def failed_parts(self) -> tuple[Part, ...]:
        return tuple(part for part in self.preflight if part.status == "failed")

    @property
    def failed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.status == "failed")

    def errors(self, account: str) -> dict[str, float]:
        """How far predictions of an account are off, by the name of the row."""
        found = {row.name: row.error(account) for row in self.rows}
        return {name: error for name, error in found.items() if error is not None}

    def typical_and_worst(self, account: str) -> tuple[float, float, str] | None:
        """The median and the largest error of an account, without sign, and the row of the largest."""
        errors = {name: abs(error) for name, error in self.errors(account).items()}
        if not errors:
            return None
        worst = max(errors, key=errors.__getitem__)
        return median(errors.values()), errors[worst], worst


def write_validation(folder: Path, found: Validation) -> Path:
    """Writes the record into a folder, and returns its path."""
    make_folder(folder)
    write_whole(folder / FILE, to_json(found, indent=1) + "\n")
    return folder / FILE


def read_validation(file: Path) -> Validation:
    """The record in a file."""
    return read_record(Validation, file)


_SHARED_ACCOUNTS = {"memory_bytes": MEMORY, "reserved_bytes": "device/reserved", "step_seconds": SECONDS}
_SHARED_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "threads", "float32")


@dataclass(frozen=True)
class Sides:
    """An amount as planned and as measured."""

    planned: float | None
    measured: float | None


@dataclass(frozen=True)
class SharedRow:
    """One recipe."""

    name: str
    knobs: str
    ranks: int
    status: str
    reason: str = ""
    amounts: dict[str, Sides] = field(default_factory=dict)


@dataclass(frozen=True)
class Shared:
    """What `surefoot validate --share` writes: one small anonymous record of a device, for an issue.

    It holds the card, the versions, the preflight, and planned and measured by case. It holds no path, host or user.
    """

    device: str
    kind: str
    count: int
    memory_bytes: int
    capability: str
    date: str
    versions: dict[str, str]
    settings: dict[str, str]
    preflight: tuple[Part, ...]
    cases: tuple[SharedRow, ...]


def shared(found: Validation) -> Shared:
    """The part of a validation that an issue needs."""
    machine = found.machine
    return Shared(
        machine.device,
        machine.kind,
        machine.count,
        machine.memory_bytes,
        machine.capability,
        found.date,
        machine.versions,
        {name: machine.settings[name] for name in _SHARED_SETTINGS if name in machine.settings},
        found.preflight,
        tuple(map(_row, found.rows)),
    )


def _row(row: Row) -> SharedRow:
    entries = {name: row.entry(account) for name, account in _SHARED_ACCOUNTS.items()}
    amounts = {name: Sides(entry.predicted, entry.measured) for name, entry in entries.items() if entry is not None}
    return SharedRow(row.name, " ".join(row.words), row.ranks, row.status, row.reason, amounts)


def write_shared(file: Path, found: Validation) -> None:
    """Writes the part of a validation that an issue needs, whole or not at all."""
    write_whole(file, to_json(shared(found), indent=1) + "\n")
