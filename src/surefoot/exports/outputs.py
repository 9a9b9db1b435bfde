"""The outputs of a network as named tensors, and how far two of them differ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from surefoot.world.device import wide


def leaves(output: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a network's output that is no container, by its place: `logits`, `0.1`. None is left out."""
    if output is None:
        return
    if (parts := _parts(output)) is None:
        yield path, output
        return
    for name, part in parts:
        yield from leaves(part, f"{path}.{name}" if path else name)


def tensors(output: Any) -> dict[str, torch.Tensor]:
    """The tensors of a network's output, by their places."""
    return {path: leaf for path, leaf in leaves(output) if isinstance(leaf, torch.Tensor)}


def is_plain(output: Any) -> bool:
    """Whether an output consists of tensors in tuples, lists and dicts alone, which need no other class."""
    if isinstance(output, torch.Tensor) or output is None:
        return True
    parts = _parts(output) if type(output) in (tuple, list, dict) else None
    return parts is not None and all(is_plain(part) for _, part in parts)


def made_plain(output: Any) -> Any:
    """An output with dicts for mappings and data classes, and without what is neither a tensor nor a container."""
    if isinstance(output, torch.Tensor) or output is None:
        return output
    parts = _parts(output)
    if parts is None:
        return None
    made = {name: made_plain(part) for name, part in parts}
    if isinstance(output, list | tuple) and not hasattr(output, "_fields"):
        return tuple(made.values())
    return {name: part for name, part in made.items() if part is not None}


def difference(expected: Any, got: Any) -> float:
    """The largest difference of any tensor, relative to its largest value; infinite if a place or shape differs."""
    here, there = tensors(expected), tensors(got)
    if here.keys() != there.keys():
        return math.inf
    return max((_difference(here[path], there[path]) for path in here), default=math.inf)


def _difference(expected: torch.Tensor, got: torch.Tensor) -> float:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return math.inf
    if not expected.numel() or torch.equal(expected, got):
        return 0.0
    if not expected.is_floating_point():
        return math.inf
    scale = max(expected.abs().max().item(), torch.finfo(torch.float32).tiny)
    return (wide(expected) - wide(got)).abs().max().item() / scale


def _parts(output: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container by name, or None if it is none."""
    if isinstance(output, Mapping):
        return [(str(name), part) for name, part in output.items()]
    if isinstance(output, list | tuple):
        names = getattr(output, "_fields", None) or map(str, range(len(output)))
        return list(zip(names, output, strict=True))
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return [(each.name, getattr(output, each.name)) for each in dataclasses.fields(output)]
    return None
