"""Splits a nested state into an outline, which JSON can hold, and tensors by name; and joins them again."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from surefoot.errors import CheckpointError

MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
Place = tuple[Any, ...]


@dataclass(frozen=True)
class Saved:
    """Stands for a tensor in an outline: its name, dtype, shape, strides and device."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str

    def empty(self) -> torch.Tensor:
        """Allocates memory for it, on the CPU."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


def take_apart(state: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The outline of a state, and its tensors by name. A tensor that appears twice is saved once."""
    tensors: dict[str, torch.Tensor] = {}
    seen: dict[Any, str] = {}

    def saved(place: Place, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        _refuse_unsavable(place, value)
        memory = _memory(value)
        if memory not in seen:
            seen[memory] = name = _fresh(".".join(map(str, place)), tensors)
            tensors[name] = value.detach()
        name = seen[memory]
        return Saved(name, value.dtype, tuple(value.shape), _dense_stride(value), value.device.type)

    return map_leaves(saved, state), tensors


def map_leaves(function: Callable[[Place, Any], Any], tree: Any, place: Place = ()) -> Any:
    """A tree of the same structure, with every leaf replaced by `function(place, leaf)`."""
    if type(tree) in MAPPINGS.values():
        return type(tree)({key: map_leaves(function, item, (*place, key)) for key, item in tree.items()})
    if type(tree) in (list, tuple):
        return type(tree)(map_leaves(function, item, (*place, number)) for number, item in enumerate(tree))
    return function(place, tree)


def leaves(tree: Any) -> list[tuple[Place, Any]]:
    """Every leaf of a tree, and where it is."""
    found: list[tuple[Place, Any]] = []
    map_leaves(lambda place, leaf: found.append((place, leaf)), tree)
    return found


def _memory(tensor: torch.Tensor) -> Any:
    """A key that is equal for tensors that share memory. DTensors are compared by object: shards can be empty."""
    if isinstance(tensor, DTensor):
        return id(tensor)
    if tensor.numel() == 0:
        return object()
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of a dense tensor with the same order of dimensions in memory."""
    if isinstance(tensor, DTensor) or tensor.is_contiguous():
        return tuple(tensor.stride())
    return tuple(torch.empty_like(tensor, device="meta").stride())


def _fresh(name: str, taken: dict[str, torch.Tensor]) -> str:
    """A name that is not taken: `{"a.b": x, "a": {"b": y}}` holds two tensors of one name."""
    names = chain([name], (f"{name}~{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def _refuse_unsavable(place: Place, tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter) and not isinstance(tensor, DTensor):
        raise CheckpointError(
            f"{where(place)} is a {kind.__name__}; a checkpoint holds only plain tensors and DTensors"
        )
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        what = "on the meta device" if tensor.is_meta else f"a {tensor.layout} tensor"
        raise CheckpointError(f"{where(place)} is {what}; a checkpoint holds only dense tensors")


def where(place: Place) -> str:
    """A place in a state, written as Python code."""
    return "state" + "".join(f"[{part!r}]" for part in place)


def to_json(outline: Any) -> str:
    """An outline as JSON. Every JSON object in it has one key, which names its type."""
    return json.dumps(_plain(outline, ()), allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """The outline that `to_json` wrote. Numbers are equal to the last bit."""
    return json.loads(text, object_hook=_lively)


def _plain(value: Any, place: Place) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if kind is list:
        return [_plain(item, (*place, number)) for number, item in enumerate(value)]
    if kind is tuple:
        return {"tuple": [_plain(item, (*place, number)) for number, item in enumerate(value)]}
    if kind in MAPPINGS.values():
        items = [[_plain(key, (*place, key)), _plain(item, (*place, key))] for key, item in value.items()]
        return {kind.__name__: items}
    if kind is Saved:
        return {"tensor": [value.name, _name(value.dtype), list(value.shape), list(value.stride), value.device]}
    if kind is torch.dtype:
        return {"dtype": _name(value)}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"numpy": [value.dtype.str, value.tobytes().hex()]}
    raise CheckpointError(
        f"{where(place)} is a {kind.__module__}.{kind.__qualname__}; a checkpoint holds tensors, numbers, strings, "
        "None, lists, tuples and dicts"
    )


def _lively(tagged: dict[str, Any]) -> Any:
    [(tag, value)] = tagged.items()
    if tag == "float":
        return struct.unpack(">d", bytes.fromhex(value))[0]
    if tag == "tuple":
        return tuple(value)
    if tag in MAPPINGS:
        return MAPPINGS[tag](dict(value))
    if tag == "tensor":
        name, dtype, shape, stride, device = value
        return Saved(name, _dtype(dtype), tuple(shape), tuple(stride), device)
    if tag == "dtype":
        return _dtype(value)
    if tag == "numpy":
        return np.frombuffer(bytes.fromhex(value[1]), dtype=value[0])[0]
    raise ValueError(f"unknown kind {tag!r}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"unknown dtype {name!r}")
    return found
