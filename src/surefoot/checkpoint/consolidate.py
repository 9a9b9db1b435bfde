"""Consolidate: whole tensors from the shards on many ranks, or from a checkpoint that many ranks saved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from surefoot.checkpoint.checkpoint import Checkpoint, allocated
from surefoot.checkpoint.outline import Saved
from surefoot.errors import CheckpointError
from surefoot.plain_files import create_new, write_whole

INDEX = "model.safetensors.index.json"
"""Lists the file of each tensor, in the format that Hugging Face's libraries read."""


def names_of(model: torch.nn.Module) -> list[str]:
    """The names of a model's tensors, sorted. A tensor with several names appears once, under the first."""
    first: dict[int, str] = {}
    for name, value in sorted(model.state_dict(keep_vars=True).items()):
        if isinstance(value, torch.Tensor):
            first.setdefault(id(value), name)
    return list(first.values())


class TensorsOf:
    """A model's state dict without the extra state of modules: a safetensors file holds only tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self.model.state_dict().items() if isinstance(value, torch.Tensor)}


def state_names(checkpoint: Checkpoint) -> list[str]:
    """The names that `names_of` gives for the saved model, read from the checkpoint.

    An older checkpoint does not list the non-persistent buffers; then all buffers are named.
    """
    first: dict[str, str] = {}
    try:
        outline = checkpoint.outline()
        left_out = set(outline.get("transient", ()))
        for name, tensor in sorted(outline["model"].items()):
            if name not in left_out:
                first.setdefault(tensor.name, name)
    except (KeyError, TypeError, AttributeError) as error:  # the hashes are right, so this file was forged
        raise CheckpointError(f"{checkpoint.path.name} does not describe its model: {error!r}") from error
    return list(first.values())


def whole_tensors(model: torch.nn.Module, *, keep: bool) -> dict[str, torch.Tensor]:
    """Every tensor of the model's state, whole and on the CPU, on the ranks that `keep` them.

    All ranks call it. Tensors are gathered one at a time, so a rank that keeps none holds at most one.
    """
    state, found = model.state_dict(keep_vars=True), {}
    for name in names_of(model):
        tensor = state[name].detach()
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name.replace("_orig_mod.", "")] = whole.cpu().contiguous()
    return found


def write_weights(
    checkpoint: Checkpoint, names: Iterable[str], folder: Path, *, file_bytes: int
) -> dict[str, list[str]]:
    """Writes tensors of a checkpoint's model as a set of safetensors files. Returns the names in each file.

    At most one file is in memory at a time: `file_bytes`, or a single larger tensor.
    """
    outline = checkpoint.outline()
    model: dict[str, Saved] = outline["model"]
    averages: dict[str, Saved] = outline.get("ema", {}).get("averages", {})
    averaged = {model[name].name: average for name, average in averages.items() if name in model}
    saved = {name: averaged.get(tensor.name, tensor) for name, tensor in model.items()}
    missing = [name for name in names if name not in saved]
    if missing:
        raise CheckpointError(f"{checkpoint.path.name} belongs to another model; it lacks {', '.join(missing[:5])}")
    parts = list(_parts({name: saved[name] for name in names}, file_bytes))
    files = {_file(number, len(parts)): part for number, part in enumerate(parts, start=1)}
    for file, part in files.items():
        tensors = {name: allocated(saved[name]).contiguous() for name in part}
        checkpoint.read({saved[name].name: tensor for name, tensor in tensors.items()})
        tensors = {name: tensor.to(model[name].dtype) for name, tensor in tensors.items()}
        save_file(tensors, create_new(folder / file), metadata={"format": "pt"})
        _compare(folder / file, tensors)
    if len(files) > 1:
        places = {name: file for file, part in files.items() for name in part}
        total = {"total_size": sum(_bytes(saved[name]) for name in places)}
        write_whole(folder / INDEX, json.dumps({"metadata": total, "weight_map": places}, indent=2) + "\n", shared=True)
    return files


def _parts(saved: dict[str, Saved], file_bytes: int) -> Iterator[list[str]]:
    """Groups the names, in order, into files of at most `file_bytes`."""
    part: list[str] = []
    for name, tensor in saved.items():
        if part and sum(_bytes(saved[each]) for each in part) + _bytes(tensor) > file_bytes:
            yield part
            part = []
        part.append(name)
    yield part


def _bytes(saved: Saved) -> int:
    return math.prod(saved.shape) * saved.dtype.itemsize


def _file(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number:05}-of-{count:05}.safetensors"


def _compare(file: Path, tensors: dict[str, torch.Tensor]) -> None:
    with safe_open(file, framework="pt") as written:
        for name, tensor in tensors.items():
            if not torch.equal(_bits(written.get_tensor(name)), _bits(tensor)):
                raise CheckpointError(f"{file} reads back damaged: {name} is not what was written")


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
