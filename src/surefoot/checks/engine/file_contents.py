"""What a file of saved state holds, read once for all observers that ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.scene import fingerprints, readable, tensors
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

_COUNTERS = ("epoch", "step", "iter")
Counts = dict[str, int]


class Contents:
    """The object given to `torch.save` or returned by `torch.load`. Properties are computed on first use."""

    def __init__(self, value: object) -> None:
        self.value = value

    @cached_property
    def items(self) -> tuple[Any, ...]:
        """Its values, and those in nested lists and dicts."""
        return tuple(items_of(self.value))

    @cached_property
    def counts(self) -> Counts:
        """Its counters, such as `epoch` or `step`."""
        return counts_in(self.value)

    @cached_property
    def weights(self) -> Weights:
        """Its tensors, without the moments of an optimizer."""
        return weights_in(self.value)

    @cached_property
    def prints(self) -> set[int]:
        """Hashes of all its tensors."""
        return set(fingerprints(filter(readable, tensors(self.value))))


@dataclass
class Weights:
    """A summary of the tensors in a file."""

    where: str = ""
    elements: int = 0
    prints: set[int] = field(default_factory=set)
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)


def weights_in(loaded: object) -> Weights:
    """The tensors in a file, without the moments of an optimizer."""
    items = [loaded, *loaded.values()] if isinstance(loaded, dict) else [loaded]
    moments = {id(each) for item in items if is_optimizer_state(item) for each in tensors(item)}
    held = [each for each in tensors(loaded) if readable(each) and id(each) not in moments]
    shapes = Counter(tuple(each.shape) for each in held)
    return Weights(caller(), sum(map(torch.numel, held)), set(fingerprints(held)), shapes)


def items_of(saved: object) -> Iterator[Any]:
    """Yields the values of a saved object, and those in nested lists and dicts."""
    items = saved.values() if isinstance(saved, dict) else saved if isinstance(saved, list | tuple) else ()
    for each in items:
        yield each
        if isinstance(each, list | tuple) or (isinstance(each, dict) and not is_weights(each)):
            yield from items_of(each)


def names_in(saved: object) -> set[str]:
    """The last part of every key in a saved object."""
    tables = [each for each in (saved, *items_of(saved)) if isinstance(each, dict)]
    return {str(name).rpartition(".")[2] for table in tables for name in table}


def is_optimizer_state(value: object) -> bool:
    return isinstance(value, dict) and {"state", "param_groups"} <= set(value)


def is_scheduler_state(value: object) -> bool:
    return isinstance(value, dict) and "last_epoch" in value


def is_weights(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, torch.Tensor) for each in value.values())


def varying(given: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Those with more than one value."""
    some = list(given)
    with aside():
        vary = HOST.fresh([(each != each.flatten()[:1].squeeze()).any() for each in some])
        return [each for each, varies in zip(some, vary, strict=True) if varies]


def counts_in(state: Any) -> Counts:
    """The counters in a checkpoint: integers with a name like `epoch` or `step`, in a dict that holds other dicts."""
    if not isinstance(state, dict) or not any(isinstance(value, dict) for value in state.values()):
        return {}
    return {
        str(name): value
        for name, value in state.items()
        if type(value) is int and any(word in str(name).lower() for word in _COUNTERS)
    }
