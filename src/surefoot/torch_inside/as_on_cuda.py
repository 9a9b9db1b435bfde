"""Kernels and lists as on CUDA: registers operators for a while, and lets optimizers use lists of fake CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils

from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.torch_inside.patches import patched


def library() -> Any:
    """A context with a library of aten kernels, which are removed at its end."""
    return torch.library._scoped_library("aten", "IMPL")


@contextmanager
def lists_by_default() -> Iterator[None]:
    """Makes optimizers and clipping use lists for fake CPU tensors, as they do on CUDA."""
    listed = optimizers._foreach_supported_types, _foreach_utils._foreach_supported_types
    for types in listed:
        types.append(FakeTensor)
    try:
        with patched(optimizers, "_get_foreach_kernels_supported_devices", lambda plain: lambda: [*plain(), "cpu"]):
            yield
    finally:
        for types in listed:
            types.remove(FakeTensor)
