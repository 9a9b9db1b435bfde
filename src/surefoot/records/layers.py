"""What each layer did in a step: one JSON line for each step that was measured, appended, never rewritten."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.records.codec import read_lines


@dataclass(frozen=True)
class Layer:
    """One layer in one step. A figure is None if there was nothing to measure."""

    kind: str
    """The class of the module, for example `Linear`."""
    gradient_norm: float | None = None
    """Before clipping. None if none of its parameters has a gradient."""
    update_ratio: float | None = None
    """The norm of the update divided by the norm of the weights after it."""
    mean: float | None = None
    """Of the activations: all values that the layer returned in this step, on all ranks."""
    deviation: float | None = None
    zeros: float | None = None
    """The share of activations that are exactly zero."""
    saturated: float | None = None
    """The share of activations at the ends of the range of a tanh, a sigmoid or the like. None for other layers."""


@dataclass(frozen=True)
class LayersRow:
    """All layers in one step. `attempt` is that of the step's row in the log."""

    step: int
    attempt: int = 0
    layers: dict[str, Layer] = field(default_factory=dict)


def line_of_layers(row: LayersRow) -> str:
    """A row as a line of the file."""
    # `to_json` would take several times as long
    layers = {name: {key: _word(value) for key, value in vars(each).items()} for name, each in row.layers.items()}
    return json.dumps({"step": row.step, "attempt": row.attempt, "layers": layers}, allow_nan=False) + "\n"


def read_layers(path: Path) -> Iterator[LayersRow]:
    """Every row of the file, oldest first. A last line that a crash cut is skipped."""
    return read_lines(LayersRow, path) if path.exists() else iter(())


def _word(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
