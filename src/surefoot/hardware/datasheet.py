"""A device's numbers, each with its source."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from surefoot.errors import UnknownDevice


@dataclass(frozen=True)
class Datasheet:
    """Dense peaks in FLOP/s by number format, never the sparse ones; memory in bytes as the vendor labels it.

    `usable_bytes` is what CUDA reports as the device's total, 0 where no source states it.
    """

    name: str
    vendor: str
    dense_flops: dict[str, float]
    memory_bytes: int
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    usable_bytes: int = 0
    compute_capability: str = ""


def datasheet(name: str) -> Datasheet:
    """The datasheet of a device, such as `h100-sxm`."""
    sheets = _sheets()
    if name not in sheets:
        raise UnknownDevice(f"no datasheet for {name!r}; known: {', '.join(sorted(sheets))}")
    return sheets[name]


def known_devices() -> tuple[str, ...]:
    """The names that `datasheet` knows."""
    return tuple(sorted(_sheets()))


@cache
def _sheets() -> dict[str, Datasheet]:
    text = (files("surefoot.hardware") / "datasheets.json").read_text(encoding="utf-8")
    return {plain["name"]: _sheet(plain) for plain in json.loads(text)}


def _sheet(plain: dict[str, Any]) -> Datasheet:
    return Datasheet(**{**plain, "sources": tuple(plain["sources"]), "notes": tuple(plain["notes"])})
