"""Fake CPU tensors that behave as on a GPU: its operators, its autocast, and its optimizers' lists."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from surefoot.torch_inside.as_on_cuda import library, lists_by_default
from surefoot.world.gpu.autocast import autocasting
from surefoot.world.gpu.operators import operators
from surefoot.world.gpu.target import Gpu


@contextmanager
def as_on(gpu: Gpu) -> Iterator[None]:
    """Makes operators and autocast behave as on CUDA. Optimizers use lists of tensors as they do on CUDA."""
    with library() as kernels, lists_by_default():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")
            for name, function in autocasting():
                kernels.impl(name, function, "AutocastCPU")
            for name, function in operators(gpu):
                kernels.impl(name, function, "AutogradCPU")
        yield
