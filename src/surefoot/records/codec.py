"""Turns records into JSON and back, by the type hints of their dataclasses."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

Record = TypeVar("Record")


def to_json(record: Any, *, indent: int | None = 2) -> str:
    """One record as JSON text. JSON has no NaN and no infinity: they are written as words."""
    return json.dumps(to_plain(record), indent=indent, allow_nan=False)


def from_json(kind: type[Record], text: str) -> Record:
    """The record that `to_json` wrote."""
    record: Record = from_plain(kind, json.loads(text))
    return record


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers: what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """Rebuilds a value of type `kind` from what `to_plain` made."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(value, str) and float in (kind, *parts) and str not in parts:
        return float(value)
    if dataclasses.is_dataclass(kind):
        hints = _hints(typing.cast(Any, kind))
        return kind(**{name: from_plain(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if origin in (types.UnionType, typing.Union):
        present = [part for part in parts if part is not type(None)]
        return value if value is None or len(present) > 1 else from_plain(present[0], value)
    if origin is tuple:
        return tuple(from_plain(parts[0], item) for item in value)
    if origin is dict:
        return {key: from_plain(parts[1], item) for key, item in value.items()}
    return value


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
