"""Fills a model from safetensors: one file, quantised or not, or a set with an index. Nothing in them is executed.

What does not fit is refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from surefoot.errors import RunError
from surefoot.exports.quantize import as_whole, fill, quantised_in, quantize
from surefoot.training.weight_set import SUFFIX, places_of, refuse_other_contents
from surefoot.training.weights import QUANTIZATION
from surefoot.units import first_of

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


@dataclass(frozen=True)
class _Header:
    """What a file says of its tensors: shape and number format of each, and how they are quantised, if at all."""

    tensors: dict[str, tuple[tuple[int, ...], torch.dtype | None]]
    quantization: str | None


def load_weights(model: torch.nn.Module, file: Path, *, device: str = "cpu") -> None:
    """Copies every tensor of the file or set into the model. Names, shapes and number formats must be the model's.

    If the file is quantised, so is the model afterwards.
    """
    files = [file]
    if file.name.endswith(SUFFIX):
        places = places_of(file, RunError)
        files = sorted(set(places.values()))
    headers = {each: _header(each) for each in files}
    if len({header.quantization for header in headers.values()}) > 1:
        raise RunError(f"the files of {file} are quantised in different ways; export the run again")
    if file.name.endswith(SUFFIX):
        refuse_other_contents(file, places, {each: header.tensors for each, header in headers.items()}, RunError)
    tensors = {name: about for header in headers.values() for name, about in header.tensors.items()}
    kinds = {header.quantization for header in headers.values() if header.quantization is not None}
    for kind in kinds:
        _refuse_other(model, file, as_whole(model, file, tensors, kind))
        quantize(model, kind, quantised_in(tensors))
    if not kinds:
        _refuse_other(model, file, tensors)
    for each in files:
        fill(model, _tensors(each, device))


def quantization_of(file: Path) -> str | None:
    """How a file is quantised, or None."""
    return None if file.name.endswith(SUFFIX) else _header(file).quantization


def _header(file: Path) -> _Header:
    _refuse_pickle(file)
    try:
        with safe_open(file, framework="pt") as opened:
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  it is not a dict
            found = {name: (tuple(part.get_shape()), _TYPES.get(part.get_dtype())) for name, part in parts.items()}
            return _Header(found, (opened.metadata() or {}).get(QUANTIZATION))
    except (SafetensorError, OSError) as error:
        raise _not_whole(file, error) from error


def _tensors(file: Path, device: str = "cpu") -> dict[str, torch.Tensor]:
    try:
        return load_file(file, device=device)
    except (SafetensorError, OSError) as error:
        raise _not_whole(file, error) from error


def _not_whole(file: Path, error: Exception) -> RunError:
    return RunError(f"{file} is not a whole safetensors file ({error}); copy or export it again")


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


def _refuse_other(
    model: torch.nn.Module, file: Path, there: Mapping[str, tuple[tuple[int, ...], torch.dtype | None]]
) -> None:
    state = {name: each for name, each in model.state_dict(keep_vars=True).items() if isinstance(each, torch.Tensor)}
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    missing = [same[0] for same in names.values() if not any(name in there for name in same)]
    unknown = [name for name in there if name not in state]
    if missing or unknown:
        more = first_of(missing or unknown, 1)
        lacks = f"it lacks {more}" if missing else f"it has {more}, which the model has not"
        raise RunError(f"{file} is of another model: {lacks}; name the recipe and the knobs that made it")
    for name, (shape, dtype) in there.items():
        if shape != tuple(state[name].shape):
            raise RunError(f"{file} is of another model: {_shapes(name, shape, tuple(state[name].shape))}")
        if dtype != state[name].dtype:
            given = next((each for each, known in _TYPES.items() if known == dtype), "unknown")
            wanted = str(state[name].dtype).removeprefix("torch.")
            raise RunError(
                f"{file} has another number format: {name} is {given} in the file and {wanted} in the model; export it "
                "again, or set the precision that it was made with"
            )


def _shapes(name: str, there: tuple[int, ...], here: tuple[int, ...]) -> str:
    said = f"{name} is {list(there)} in the file and {list(here)} in the model"
    if len(there) == len(here) == 2 and there[1] == here[1]:
        return f"{said}, as with another vocabulary; use the tokenizer, corpus and knobs that it was trained with"
    return f"{said}; name the knobs that it was trained with"
