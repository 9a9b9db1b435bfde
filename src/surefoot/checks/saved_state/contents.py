"""Contents: what stands in a file of saved state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.scene import fingerprint, readable, tensors
from surefoot.events.autograd import aside
from surefoot.events.callers import caller

_COUNTERS = ("epoch", "step", "iter")
Counts = dict[str, int]


@dataclass
class Weights:
    """The tensors of a file."""

    where: str = ""
    elements: int = 0
    prints: set[int] = field(default_factory=set)
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)


def weights_in(loaded: Any) -> Weights:
    """What a file holds beside the moments of an optimizer."""
    items = [loaded, *loaded.values()] if isinstance(loaded, dict) else [loaded]
    moments = {id(each) for item in items if is_optimizer_state(item) for each in tensors(item)}
    held = [each for each in tensors(loaded) if readable(each) and id(each) not in moments]
    shapes = Counter(tuple(each.shape) for each in held)
    return Weights(caller(), sum(map(torch.numel, held)), set(map(fingerprint, held)), shapes)


def items_of(saved: Any) -> Iterator[Any]:
    """What a file holds, and what stands in its lists and tables."""
    items = saved.values() if isinstance(saved, dict) else saved if isinstance(saved, list | tuple) else ()
    for each in items:
        yield each
        if isinstance(each, list | tuple) or (isinstance(each, dict) and not is_weights(each)):
            yield from items_of(each)


def names_in(saved: Any) -> set[str]:
    """The last parts of the names under which a file holds something."""
    tables = [each for each in (saved, *items_of(saved)) if isinstance(each, dict)]
    return {str(name).rpartition(".")[2] for table in tables for name in table}


def is_optimizer_state(value: Any) -> bool:
    return isinstance(value, dict) and {"state", "param_groups"} <= set(value)


def is_scheduler_state(value: Any) -> bool:
    return isinstance(value, dict) and "last_epoch" in value


def is_weights(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, torch.Tensor) for each in value.values())


def varies(tensor: torch.Tensor) -> bool:
    with aside():
        return bool((tensor != tensor.flatten()[:1].squeeze()).any())


def goes_on(optimizer: Optimizer, groups: list[dict[str, Any]]) -> bool:
    """Is it one of the kind that a file holds, no smaller in rate? Otherwise other training begins with its weights."""
    own = optimizer.param_groups
    alike = [len(each["params"]) for each in own] == [len(each["params"]) for each in groups]
    kinds = [set(each) - {"initial_lr"} for each in (own[0], groups[0])]
    made_with = _made_with(optimizer)
    as_fast = max(_planned(own), made_with) >= 0.99 * _planned(groups) or made_with == float(groups[0].get("lr", 0.0))
    return alike and kinds[0] == kinds[1] and as_fast


def _made_with(optimizer: Optimizer) -> float:
    """The rate that all groups were made with, however it was changed by hand; nothing where a group has its own."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    return float(optimizer.defaults.get("lr", 0.0)) if len(rates) == 1 else 0.0


def _planned(groups: list[dict[str, Any]]) -> float:
    """The largest rate that a schedule starts from, or that there is."""
    return max(float(each.get("initial_lr", each.get("lr", 1.0))) for each in groups)


def counts_in(state: Any) -> Counts:
    """The counters in a dict that holds tensors beside them."""
    if not isinstance(state, dict) or not any(isinstance(value, dict) for value in state.values()):
        return {}
    return {
        str(name): value
        for name, value in state.items()
        if type(value) is int and any(word in str(name).lower() for word in _COUNTERS)
    }
