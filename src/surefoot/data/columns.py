"""Columns: the tensors of a safetensors file as samples. Each is an argument of the model, with a row per sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch.utils.data import Dataset

from surefoot.errors import DataError
from surefoot.units import first_of

_SHOWN = 6
"""How many tensors an error lists."""


class Columns(Dataset[dict[str, torch.Tensor]]):
    """Sample `i` is row `i` of every tensor, by name."""

    draws_randomness = False

    def __init__(self, file: str) -> None:
        self.file = file
        if not Path(file).is_file():
            raise DataError(f"there is no file {file}")
        try:
            _refuse_other(file, _shapes(file))
            self.tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise DataError(f"{file} is not a whole safetensors file: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Columns, (self.file,)

    def __len__(self) -> int:
        return len(self.tensors["labels"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: each[index] for name, each in self.tensors.items()}


def _shapes(file: str) -> dict[str, list[int]]:
    with safe_open(file, framework="pt") as opened:
        return {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118  it is not a dict


def _refuse_other(file: str, shapes: dict[str, list[int]]) -> None:
    """Refuses tensors that are no samples by the header alone, before one of them is read."""
    rows = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
    if "labels" not in rows or len(set(rows.values())) != 1 or not min(rows.values()):
        held = first_of([f"{name} {shape}" for name, shape in shapes.items()], _SHOWN) or "nothing"
        raise DataError(f"{file} must hold `labels` and the model's inputs, with a row per sample; it holds {held}")
