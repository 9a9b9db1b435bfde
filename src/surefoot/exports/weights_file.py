"""Fills a model from a safetensors file, and says in one sentence why a file does not fit. Nothing is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model

from surefoot.errors import RunError

_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How files of torch.save and pickle begin."""
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def load_weights(model: torch.nn.Module, file: Path, *, device: str = "cpu") -> None:
    """Copies every tensor of the file into the model. Names, shapes and number formats must be those of the model."""
    _refuse_pickle(file)
    try:
        with safe_open(file, framework="pt") as opened:
            there = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  it is not a dict
            _refuse_other(
                model, file, {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in there.items()}
            )
        load_model(model, str(file), device=device)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{file} is not a whole safetensors file ({error}); copy or export it again") from error


def _refuse_pickle(file: Path) -> None:
    try:
        with open(file, "rb") as opened:
            begins = opened.read(9)
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from error
    if begins.startswith(_PICKLES) and begins[8:] != b"{":  # a header that begins after its length
        raise RunError(
            f"{file} is a pickle with another name: reading it could execute code, so surefoot does not; write its "
            "tensors with safetensors.torch.save_file in a process that you trust"
        )


def _refuse_other(model: torch.nn.Module, file: Path, there: dict[str, tuple[tuple[int, ...], str]]) -> None:
    state = {name: each for name, each in model.state_dict(keep_vars=True).items() if isinstance(each, torch.Tensor)}
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    missing = [same[0] for same in names.values() if not any(name in there for name in same)]
    unknown = [name for name in there if name not in state]
    if missing or unknown:
        lacks = f"it lacks {_first(missing)}" if missing else f"it has {_first(unknown)}, which the model has not"
        raise RunError(f"{file} is of another model: {lacks}; name the recipe and the knobs that made it")
    for name, (shape, dtype) in there.items():
        if shape != tuple(state[name].shape):
            raise RunError(f"{file} is of another model: {_shapes(name, shape, tuple(state[name].shape))}")
        if _TYPES.get(dtype) != state[name].dtype:
            wanted = str(state[name].dtype).removeprefix("torch.")
            raise RunError(
                f"{file} has another number format: {name} is {dtype} in the file and {wanted} in the model; export it "
                "again, or set the precision that it was made with"
            )


def _shapes(name: str, there: tuple[int, ...], here: tuple[int, ...]) -> str:
    said = f"{name} is {list(there)} in the file and {list(here)} in the model"
    if len(there) == len(here) == 2 and there[1] == here[1]:
        return f"{said}, as with another vocabulary; use the tokenizer, corpus and knobs that it was trained with"
    return f"{said}; name the knobs that it was trained with"


def _first(names: list[Any]) -> str:
    return f"{names[0]}" + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")
