"""Splits: keeps a bounded number of the rows that training and validation gave to a model, with their targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from torch import nn

from surefoot.events.failsafe import Failsafe
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.meters.split_profile import Part, profile_of
from surefoot.records.splits import TARGET, TRAINING, VALIDATION, SplitProfile
from surefoot.torch_inside.modes import aside
from surefoot.torch_inside.patches import patch
from surefoot.torch_inside.processes import BATCHES
from surefoot.trees import tensors_in

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_ROWS, MOST_BYTES = 4096, 32 << 20
"""So many different rows of a part are kept, and so many bytes."""
_LONGEST_ROW = 4096
"""Of a longer row every second value is kept, or every third, and so on."""
_LABELS = ("labels", "label", "targets", "target", "y")
"""Arguments of a model by which it gets its targets."""


@dataclass
class _Given:
    """One forward: its part, its inputs by name, and its targets as soon as a loss gets them."""

    part: str
    inputs: dict[str, torch.Tensor]
    batch: list[torch.Tensor]
    """What a loader yielded last."""
    target: torch.Tensor | None = None


@dataclass
class _Kept:
    """The rows of one model in one part."""

    seen: int = 0
    size: int = 0
    keys: dict[int, int] = field(default_factory=dict)
    """By the hash of its inputs, the hash of its target."""
    batches: list[list[int]] = field(default_factory=list)
    """For each batch, the hashes of the rows that it was the first to hold."""
    rows: dict[str, list[torch.Tensor]] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.keys) >= MOST_ROWS or self.size >= MOST_BYTES


class Splits(Listener):
    """Listens to forwards: with gradients they are training, without they are validation.

    Targets are what a loss of torch gets next, what the model gets as `labels`, or what a loader yielded beside the
    inputs.
    """

    def __init__(self, phases: Phases) -> None:
        self.phases, self.failsafe = phases, Failsafe(on=True, doing="profiling data")
        self._entered = ExitStack()
        self._kept: dict[tuple[int, str], _Kept] = {}
        self._trained = set[int]()
        self._given: _Given | None = None
        self._model = 0
        self._batch: list[torch.Tensor] = []

    def __enter__(self) -> Self:
        listener = self.failsafe.listener(self)
        self.phases.listeners.append(listener)
        self._entered.callback(self.phases.listeners.remove, listener)
        yielded = self.failsafe.callback(self._yielded)

        def beside(plain: Callable[..., Any]) -> Callable[..., Any]:
            def followed(*args: Any, **kwargs: Any) -> Any:
                batch = plain(*args, **kwargs)
                yielded(batch)
                return batch

            return followed

        self._entered.callback(patch(BATCHES, "__next__", beside))
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def _yielded(self, batch: Any) -> None:
        self._batch = [each for each in tensors_in(batch) if _is_column(each)]

    def lost(self, target: torch.Tensor) -> None:
        """Hears that a loss gets a target."""
        given = self._given
        if given is None or given.target is not None or not _is_column(target) or target.requires_grad:
            return
        rows = len(next(iter(given.inputs.values())))
        if target.numel() % rows == 0 and (len(target) == rows or target.dim() == 1):
            given.target = target.reshape(rows, -1)

    def model_returned(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        self._keep()
        named = {**dict(_arguments(model, args)), **kwargs}
        columns = {name: each for name, each in named.items() if _is_column(each)}
        target = next((columns.pop(name) for name in _LABELS if name in columns and len(columns) > 1), None)
        if not columns or any(each.requires_grad for each in columns.values()):
            return
        rows = len(next(iter(columns.values())))
        inputs = {name: each for name, each in columns.items() if len(each) == rows}
        part = TRAINING if torch.is_grad_enabled() else VALIDATION
        self._given = _Given(part, inputs, self._batch, None if target is None or len(target) != rows else target)
        self._model = id(model)

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._keep()
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        self._trained |= {
            id(model) for model in self.phases.models if any(id(each) in held for each in model.parameters())
        }

    def _keep(self) -> None:
        """Keeps what the last forward was given, now that a loss has had its turn."""
        given, self._given = self._given, None
        if given is None:
            return
        kept = self._kept.setdefault((self._model, given.part), _Kept())
        rows = len(next(iter(given.inputs.values())))
        if kept.is_full:
            kept.seen += rows
            return
        with aside():
            target = given.target if given.target is not None else _beside(given, rows)
            if target is None and TARGET in kept.rows:
                return  # the checks rest, and no loss is heard: its rows would stand beside other targets
            columns = dict(given.inputs) | ({} if target is None else {TARGET: target})
            flat = {name: _flat(each) for name, each in columns.items()}
            inputs = [_hashes(each) for name, each in flat.items() if name != TARGET]
            targets = _hashes(flat[TARGET]) if target is not None else [0] * rows
            keys = list(map(hash, zip(*inputs, strict=True)))
            if given.part == VALIDATION and self._trained_on(keys):
                return
            kept.seen += rows
            fresh = {key: place for place, key in enumerate(keys) if key not in kept.keys}
            kept.keys |= {key: targets[place] for key, place in fresh.items()}
            kept.batches.append(list(fresh))
            if fresh:
                for name, each in flat.items():
                    some = each[list(fresh.values())]
                    kept.rows.setdefault(name, []).append(some)
                    kept.size += some.numel() * some.element_size()

    def _trained_on(self, keys: Sequence[int]) -> bool:
        """Are these all rows of the training? Measuring the model on them as well makes them no validation."""
        trained = self._kept.get((self._model, TRAINING), _Kept()).keys
        return all(key in trained for key in keys)

    def profile(self) -> SplitProfile | None:
        """The profile of the trained model that was given the most rows; None if there is none."""
        self._keep()
        models = {model for model, _ in self._kept if model in self._trained}
        if not models:
            return None
        most = max(models, key=lambda model: sum(each.seen for (of, _), each in self._kept.items() if of == model))
        with aside():
            self._model = most
            kept = {part: each for (of, part), each in self._kept.items() if of == most}
            parts = [_part(part, each, self._not_trained_on(part, each)) for part, each in kept.items()]
            return profile_of([each for each in parts if each.keys])

    def _not_trained_on(self, part: str, kept: _Kept) -> list[int]:
        """The places of the kept rows that belong to a part, now that all of the training is known."""
        trained = {key for batch in kept.batches if part == VALIDATION and self._trained_on(batch) for key in batch}
        return [place for place, key in enumerate(kept.keys) if key not in trained]


def _part(name: str, kept: _Kept, places: list[int]) -> Part:
    """The rows at these places. Shorter ones, as those of texts, are filled up with zeros."""
    columns = {}
    for column, some in kept.rows.items():
        longest = max(each.shape[1] for each in some)
        joined = torch.cat([nn.functional.pad(each, (0, longest - each.shape[1])) for each in some])
        if len(joined) == len(kept.keys):  # else it was not given every time
            columns[column] = joined[places]
    keys = list(kept.keys.items())
    return Part(name, kept.seen, kept.size, dict(keys[place] for place in places), columns)


def _beside(given: _Given, rows: int) -> torch.Tensor | None:
    """The last column that a loader yielded with these inputs, and that is not one of them."""
    entered = {_hashes(_flat(each[:1]))[0] for each in given.inputs.values()}
    columns = [(each, _hashes(_flat(each[:1]))[0]) for each in given.batch if len(each) == rows]
    others = [each for each, key in columns if key not in entered]
    return others[-1] if len(others) < len(columns) and others else None


def _is_column(value: Any) -> bool:
    """Is this a plain tensor on the host with a row for each sample? Reading one of a device would make it wait."""
    return isinstance(value, torch.Tensor) and value.is_cpu and value.dim() > 0 and value.numel() > 0


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The names of the arguments of its forward."""
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)


def _arguments(model: nn.Module, args: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(model)
    names = _names(kind)
    for place, each in enumerate(args):
        yield names[place] if place < len(names) else f"input {place + 1}", each


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its rows as vectors of a bounded length, in a memory of their own."""
    rows = tensor.detach().reshape(len(tensor), -1)
    step = -(-rows.shape[1] // _LONGEST_ROW)
    rows = rows[:, ::step]
    if rows.dtype in (torch.bfloat16, torch.float16):
        rows = rows.float()
    return rows.clone(memory_format=torch.contiguous_format)


def _hashes(rows: torch.Tensor) -> list[int]:
    return [xxhash.xxh3_64_intdigest(row.data) for row in rows.view(torch.uint8).numpy()]
