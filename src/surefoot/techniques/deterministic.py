"""Deterministic: only kernels that give the same bits each time, by torch's flags and cuBLAS's workspace.

On a CPU a step repeats bit for bit without them, as measured. On a GPU some kernels add up in the order in which
threads arrive. `deterministic=true` sets what https://docs.pytorch.org/docs/2.13/notes/randomness.html names. An
operator that has no such kernel raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import torch

from surefoot.errors import WorldError
from surefoot.recipe.recipe import Recipe
from surefoot.world import cuda

ALGORITHMS, WORKSPACE = "use_deterministic_algorithms", "CUBLAS_WORKSPACE_CONFIG"
Way = TypeVar("Way", bound=Callable[..., Any])
WORKSPACE_SIZE = ":4096:8"
"""The larger of the two values that NVIDIA documents as deterministic: 24 MiB, and faster than `:16:8`."""


@contextmanager
def applied(recipe: Recipe) -> Iterator[None]:
    """Sets the flags if the recipe asks for them, and restores them. Enter it before anything uses the device.

    cuBLAS reads its variable once, when CUDA starts. So if CUDA starts in here, the variable stays.
    """
    if not recipe.deterministic:
        yield
        return
    chosen = os.environ.get(WORKSPACE)
    if chosen is None and cuda.has_started():
        raise WorldError(
            f"deterministic=true needs {WORKSPACE} before CUDA starts, and CUDA has started without it; set "
            f"{WORKSPACE}={WORKSPACE_SIZE} in the environment and start again"
        )
    os.environ[WORKSPACE] = chosen or WORKSPACE_SIZE
    cudnn, before = torch.backends.cudnn, (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    mode, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before
        torch.use_deterministic_algorithms(mode, warn_only=warns)
        if chosen is None and not cuda.has_started():
            del os.environ[WORKSPACE]


def as_asked(way: Way) -> Way:
    """Makes a way run with the flags that its recipe asks for."""

    @wraps(way)
    def flagged(recipe: Recipe, *args: Any, **kwargs: Any) -> Any:
        with applied(recipe):
            return way(recipe, *args, **kwargs)

    return cast(Way, flagged)


def in_force() -> dict[str, str]:
    """The flags as they are now, whoever set them."""
    on = {True: "on", False: "off"}
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return {
        ALGORITHMS: "warn only" if warns else on[torch.are_deterministic_algorithms_enabled()],
        "cudnn.deterministic": on[torch.backends.cudnn.deterministic],
        "cudnn.benchmark": on[torch.backends.cudnn.benchmark],
        WORKSPACE: os.environ.get(WORKSPACE, "not set"),
    }


def changes(before: Mapping[str, str], now: Mapping[str, str], *, on_cuda: bool) -> Iterator[str]:
    """Which flags differ, in words. Those of cuDNN and cuBLAS count on CUDA only; one that was not recorded, never."""
    for name in now:
        if before.get(name, now[name]) != now[name] and (on_cuda or name == ALGORITHMS):
            yield f"{name} was {before[name]} and is {now[name]}"


def explain(recipe: Recipe) -> list[str]:
    """One sentence: what it costs."""
    if not recipe.deterministic:
        return []
    return ["deterministic=true: torch's deterministic kernels; on a GPU they are slower, which no figure here counts"]
