"""Randomness as a function: the seed of every draw follows from its place in the run, so nothing needs restoring."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

from surefoot.errors import CheckpointError


def derive(seed: int, *place: int | str) -> int:
    """A 63-bit seed for one place of a run, for example `derive(0, "step", 12, "rank", 0, "micro-batch", 3)`."""
    words = "/".join(map(str, (seed, *place)))
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") >> 1


def seed_all(seed: int) -> None:
    """Seeds the generators that models and data sets draw from: Python's, numpy's and torch's."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
    # Without an accelerator, torch.manual_seed spends 0.3 ms on storing a seed in case one appears.
    (torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed)(seed)


@contextmanager
def kept(devices: Iterable[int] | None = None) -> Iterator[None]:
    """Restores the random generators afterwards; `devices` is as in `torch.random.fork_rng`."""
    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)


class Stream:
    """Its own random generators: draws inside continue from the last ones inside; generators outside do not change."""

    def __init__(self, seed: int) -> None:
        with kept(devices=()):
            seed_all(seed)
            self._own = generators(devices=False)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with kept(devices=()):
            set_generators(self._own)
            yield
            self._own = generators(devices=False)


def generators(*, devices: bool = True) -> dict[str, Any]:
    """The state of every generator, in a form that a checkpoint can hold; for loops that derive no seeds."""
    name, words, *rest = cast(tuple[Any, ...], np.random.get_state())
    state = {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(words.astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if devices and torch.accelerator.is_available():
        module = torch.get_device_module()
        # torch.mps has one device and no function for all of them
        every = getattr(module, "get_rng_state_all", None) or (lambda: [module.get_rng_state()])
        state["devices"] = every()
    return state


def set_generators(state: dict[str, Any]) -> None:
    """Restores a state that `generators` returned."""
    try:
        name, words, *rest = state["numpy"]
        random.setstate(state["python"])
        np.random.set_state((name, words.numpy().astype(np.uint32), *rest))
        torch.set_rng_state(state["torch"])
    except Exception as error:  # a state made by somebody else can be anything
        raise CheckpointError(f"cannot restore the saved state of the random generators: {error!r}") from error
    if "devices" in state and torch.accelerator.is_available():
        module = torch.get_device_module()
        every = getattr(module, "set_rng_state_all", None) or (lambda states: module.set_rng_state(states[0]))
        every(state["devices"])
