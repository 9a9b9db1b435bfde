"""Columns: the tensors of a safetensors file as samples. Each is an argument of the model, with a row per sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.utils.data import Dataset

from surefoot.errors import DataError


class Columns(Dataset[dict[str, torch.Tensor]]):
    """Sample `i` is row `i` of every tensor, by name."""

    draws_randomness = False

    def __init__(self, file: str) -> None:
        self.file = file
        if not Path(file).is_file():
            raise DataError(f"there is no file {file}")
        try:
            self.tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise DataError(f"{file} is not a whole safetensors file: {error}") from error
        rows = {name: len(each) if each.dim() else 0 for name, each in self.tensors.items()}
        if "labels" not in rows or len(set(rows.values())) != 1 or not min(rows.values()):
            held = ", ".join(f"{name} {list(each.shape)}" for name, each in self.tensors.items()) or "nothing"
            raise DataError(f"{file} must hold `labels` and the model's inputs, with a row per sample; it holds {held}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Columns, (self.file,)

    def __len__(self) -> int:
        return len(self.tensors["labels"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: each[index] for name, each in self.tensors.items()}
