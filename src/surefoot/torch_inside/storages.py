"""Storages: which memory a tensor stands on, and who else does."""

from __future__ import annotations

import torch


def identity_of(storage: torch.UntypedStorage) -> int:
    """A number that two Python objects of one storage share. Fake storages have no data pointer to tell them by."""
    return storage._cdata


def holders_of(storage: torch.UntypedStorage) -> int:
    """How many tensors and other holders refer to a storage."""
    return torch._C._storage_Use_Count(storage._cdata)
