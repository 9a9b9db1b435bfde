"""Storages: which memory a tensor stands on, and who else does."""

from __future__ import annotations

import torch


def identity_of(storage: torch.UntypedStorage) -> int:
    """A number that two Python objects of one storage share. Fake storages have no data pointer to tell them by."""
    return storage._cdata


def holders_of(storage: torch.UntypedStorage) -> int:
    """How many tensors and other holders refer to a storage."""
    return torch._C._storage_Use_Count(storage._cdata)


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a view was made of; a tensor itself, if it is no view."""
    return tensor if tensor._base is None else tensor._base


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor's memory was written in place."""
    return tensor._version
