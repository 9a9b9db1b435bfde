"""Plain state: finds attributes of a model that training changes and steps depend on, but no checkpoint holds."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from surefoot.data.content import content_hash
from surefoot.randomness import kept
from surefoot.step import Step

MOST_BYTES = 2**20
MOST_ITEMS = 10_000
FAILED = -1
_OWN = frozenset(vars(nn.Module()))
"""The attributes that every module has."""
_NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic)
_Generator = random.Random | np.random.Generator | np.random.RandomState | torch.Generator


@dataclass(frozen=True)
class _Attribute:
    """One attribute of one module. `put` restores a copy of its value, or the state of a generator."""

    holder: dict[str, Any]
    name: str

    def state(self) -> Any:
        value = self.holder.get(self.name)
        return _state_of(value) if isinstance(value, _Generator) else copy.deepcopy(value)

    def put(self, state: Any) -> None:
        value = self.holder.get(self.name)
        if isinstance(value, _Generator):
            _set_state(value, state)
        else:
            self.holder[self.name] = copy.deepcopy(state)


class PlainState:
    """Remembers the plain attributes of a model. `lost` names those whose changes a resume would lose."""

    def __init__(self, model: nn.Module) -> None:
        self._attributes = dict(_attributes(model))
        self._first = {path: each.state() for path, each in self._attributes.items()}

    def lost(self, measure: Callable[[], int]) -> list[str]:
        """The attributes that have changed and that change the result of `measure` if they are reset.

        Afterwards every attribute has its current value again. If `measure` is not deterministic, the list is empty.
        """
        now = {path: each.state() for path, each in self._attributes.items()}
        changed = [path for path, state in now.items() if content_hash(state) != content_hash(self._first[path])]
        if not changed:
            return []
        try:
            usual = self._measured(now, measure)
            if self._measured(now, measure) != usual:
                return []
            return [path for path in changed if self._measured({**now, path: self._first[path]}, measure) != usual]
        finally:
            self._put(now)

    def _measured(self, states: dict[str, Any], measure: Callable[[], int]) -> int:
        """The result of `measure` with these values, or `FAILED` if it raises."""
        self._put(states)
        try:
            return measure()
        except Exception:
            return FAILED

    def _put(self, states: dict[str, Any]) -> None:
        for path, state in states.items():
            self._attributes[path].put(state)


def loss_of(step: Step, batch: Any) -> int:
    """A hash of the loss of one micro-batch. It leaves buffers and random state as they were."""
    buffers = [(buffer, buffer.clone()) for buffer in step.model.buffers()]
    try:
        with kept(), torch.no_grad():
            return content_hash(list(step.loss_of(0, batch)))
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _attributes(model: nn.Module) -> Iterator[tuple[str, _Attribute]]:
    for owner, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            continue  # the module saves its own extra state
        for name, value in vars(module).items():
            if name not in _OWN and _is_plain(value):
                yield f"{owner}.{name}".lstrip("."), _Attribute(vars(module), name)


def _is_plain(value: Any) -> bool:
    """Numbers, text, generators, small tensors and arrays, and containers of these."""
    if isinstance(value, nn.Parameter):
        return False
    if isinstance(value, torch.Tensor):
        return value.grad_fn is None and value.nbytes <= MOST_BYTES and value.layout == torch.strided
    if isinstance(value, np.ndarray):
        return value.nbytes <= MOST_BYTES and not value.dtype.hasobject
    if isinstance(value, dict):
        return len(value) <= MOST_ITEMS and all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple | set | deque):
        return len(value) <= MOST_ITEMS and all(map(_is_plain, value))
    return isinstance(value, _NUMBERS + _Generator.__args__)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return copy.deepcopy(generator.bit_generator.state)
    return generator.get_state()


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
