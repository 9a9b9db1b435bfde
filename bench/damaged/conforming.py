"""Conforming: whether a file of a run is what its record allows, told without surefoot's own reader."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from surefoot.records.event import Event
from surefoot.records.finding import Findings
from surefoot.records.log import LogRow
from surefoot.records.plan import Plan
from surefoot.records.profile import Profile
from surefoot.records.run import Run

RECORDS: dict[str, Any] = {
    "run.json": Run,
    "plan.json": Plan,
    "profile.json": Profile,
    "findings.json": Findings,
    "log.jsonl": LogRow,
    "events.jsonl": Event,
}


def conforms(file: Path) -> bool:
    """Whether a file parses and every field has the type that its record declares; a file that is not there does."""
    if not file.exists():
        return True
    try:
        content = file.read_bytes()
        # a last line without its end is what a crash leaves behind; it is no damage
        lines = [content] if file.suffix == ".json" else content.split(b"\n")[:-1]
        return all(fits(RECORDS[file.name], json.loads(line.decode(), parse_constant=_no_constant)) for line in lines)
    except (OSError, ValueError, RecursionError):
        return False


def fits(kind: Any, value: Any) -> bool:
    """Whether a plain value is one of a type hint's."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return isinstance(value, dict) and _fits_fields(kind, value)
    if origin in (types.UnionType, typing.Union):
        return any(fits(part, value) for part in parts)
    if origin is typing.Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin is tuple:
        return isinstance(value, list) and _fits_items(parts, value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(parts[1], item) for item in value.values())
    if kind is int and type(value) is float:  # JSON has one kind of number: 1.0 says what 1 says
        return value.is_integer()
    if kind is float:
        return type(value) in (int, float) or value in ("nan", "inf", "-inf")
    return kind is Any or (value is None if kind in (None, type(None)) else type(value) is kind)


def _fits_fields(kind: Any, value: dict[str, Any]) -> bool:
    hints = typing.get_type_hints(kind)
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    needed = {each.name for each in dataclasses.fields(kind) if (each.default, each.default_factory) == missing}
    return needed <= value.keys() <= hints.keys() and all(fits(hints[name], item) for name, item in value.items())


def _fits_items(parts: tuple[Any, ...], value: list[Any]) -> bool:
    if len(parts) == 2 and parts[1] is ...:
        return all(fits(parts[0], item) for item in value)
    return len(parts) == len(value) and all(map(fits, parts, value))


def _no_constant(word: str) -> None:
    raise ValueError(f"JSON has no {word}")
