"""Content: a hash of a sample or a batch, however nested: tensors, arrays, numbers, text."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xxhash

MOST_BYTES = 2**20
"""The most bytes that are hashed per tensor. For a larger one, pages spread over all of it, with the last one."""
PAGE_BYTES = 4096
DEPTH = 8


def content_hash(value: Any) -> int:
    """A 64-bit hash of values, shapes, dtypes and names. Other objects are hashed by their attributes."""
    hasher = xxhash.xxh3_64()
    _feed(hasher, value, DEPTH)
    return int(hasher.intdigest())


def _feed(hasher: Any, value: Any, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        hasher.update(f"tensor {value.dtype} {tuple(value.shape)}".encode())
        hasher.update(_bytes_of(value))
    elif isinstance(value, np.ndarray | np.generic):
        _feed_array(hasher, np.asarray(value))
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        hasher.update(f"{type(value).__name__} {value!r}".encode(errors="backslashreplace"))
    elif depth == 0:
        hasher.update(type(value).__qualname__.encode())
    elif isinstance(value, Mapping):
        _feed_many(hasher, "mapping", [part for item in value.items() for part in item], depth)
    elif isinstance(value, list | tuple | deque):
        _feed_many(hasher, "sequence", value, depth)
    elif isinstance(value, set | frozenset):
        _feed_many(hasher, "set", sorted(map(content_hash, value)), depth)
    elif hasattr(value, "tobytes"):  # an image of Pillow's
        _feed_many(hasher, type(value).__qualname__, [getattr(value, "size", None), value.tobytes()], depth)
    else:
        _feed_many(hasher, type(value).__qualname__, [vars(value) if hasattr(value, "__dict__") else None], depth)


def _feed_many(hasher: Any, kind: str, items: Any, depth: int) -> None:
    hasher.update(f"{kind} {len(items)}".encode())
    for item in items:
        _feed(hasher, item, depth - 1)


def _feed_array(hasher: Any, array: np.ndarray) -> None:
    if array.dtype.hasobject:
        _feed_many(hasher, f"array {array.shape}", array.tolist() if array.ndim else [array.item()], DEPTH)
    else:
        hasher.update(f"array {array.dtype} {array.shape}".encode())
        hasher.update(_bytes_of(torch.from_numpy(np.frombuffer(np.ascontiguousarray(array), np.uint8).copy())))


def _bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor. For a large one, evenly spaced pages of them."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.numel() == 0:
        return np.zeros(0, np.uint8)
    rows = tensor.detach().resolve_conj().reshape(-1).contiguous()  # a column stays strided when it is reshaped
    flat = rows.view(torch.uint8)
    if flat.numel() > MOST_BYTES:
        pages = flat[: flat.numel() // PAGE_BYTES * PAGE_BYTES].view(-1, PAGE_BYTES)
        flat = torch.cat([pages[:: -(-len(pages) * PAGE_BYTES // MOST_BYTES)].reshape(-1), flat[-PAGE_BYTES:]])
    return flat.cpu().numpy()
