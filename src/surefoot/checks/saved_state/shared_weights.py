"""Finds copies of weights that share their memory with the model and change with it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.functions import DATA
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, held, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.saved_state import File, SavedStateFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.events.callers import caller, frames, is_user
from surefoot.source.best_so_far import records_kept
from surefoot.torch_inside.modes import aside
from surefoot.units import counted

_HANDS_ON = {"detach", "cpu", "to", "contiguous", "requires_grad_", "float"}
"""Functions that may return their argument."""
_TELLS = {"__get__", "size", "dim", "numel", "is_floating_point", "is_complex", "element_size", "__hash__"}
"""Functions that read no values."""
_MIXES = {"copy_": "copied back", "lerp_": "averaged with themselves"}
_LOOKED_AT = 256
"""The number of values of a tensor that are compared."""


@dataclass
class _State:
    """Tensors that were taken from a model together, with the number of updates before and the line."""

    made: int
    where: str
    fewest: int = 1
    """The fewest kept tensors that count as a state, not as a look at one parameter."""
    used: bool = False
    """It was read or saved at once, so it is not kept for later."""
    saved: bool = False
    """It was saved to a file. Saved again, it would have other values."""
    told: bool = False
    held: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """The tensors by id."""
    values: dict[int, int] = field(default_factory=dict)
    """Hashes of the values, by address."""

    def add(self, tensor: torch.Tensor) -> None:
        self.held[id(tensor)] = weakref.ref(tensor)
        if readable(tensor) and _address(tensor) not in self.values:
            self.values[_address(tensor)] = fingerprint(tensor, _LOOKED_AT)

    def count(self) -> int:
        """How many of its tensors still exist."""
        return sum(ref() is not None for ref in self.held.values())

    def holds(self, tensor: torch.Tensor) -> bool:
        ref = self.held.get(id(tensor))
        return ref is not None and ref() is tensor

    def changed(self) -> bool:
        """Has training changed values of tensors that still exist?"""
        kept = [each for ref in self.held.values() for each in _weights(ref()) if readable(each)]
        return any(self.values.get(_address(each)) not in (None, fingerprint(each, _LOOKED_AT)) for each in kept)


class SharedWeights(Observer):
    """Watches states that were taken from models, as long as they exist."""

    after = (Gradients,)
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.files: list[File] = []
        self._states: list[_State] = []
        self._views: dict[str, _State] = {}
        """By line: views of parameters that were taken one by one since the last update."""
        self._depth = 0
        self._records: set[str] = set()

    def __enter__(self) -> SharedWeights:
        self.follow(nn.Module, "state_dict", before=self._hands_out, after=self._handed_out)
        self.follow(nn.Module, "load_state_dict", before=self._loads, after=self._loaded)
        self.follow(torch.func, "functional_call", before=self._views_used)
        self.follow(nn.Module, "__setstate__", after=self._copied)
        return self

    def _hands_out(self, *_: object, **__: object) -> None:
        self._depth += 1

    def _handed_out(self, found: object, module: nn.Module, *_: object, **__: object) -> None:
        self._depth -= 1
        if self._depth == 0 and isinstance(found, dict) and self._has_run(module):
            live = {*module.parameters(), *module.buffers()}
            state = _State(self.scene.updates, caller())
            for each in found.values():
                if isinstance(each, torch.Tensor) and each.is_floating_point() and each not in live:
                    state.add(each)
            state.fewest = min(2, len(state.held))  # one may be the last variable of a loop
            self._states.append(state)

    def _has_run(self, module: nn.Module) -> bool:
        return module in self.scene.phases.models or any(p in self.scene.reached for p in module.parameters())

    def _copied(self, _: object, module: nn.Module, *__: object) -> None:
        """A shallow copy of a module shares the parameters of the original."""
        shared = [p for p in module.parameters() if p in self.scene.reached]
        if shared and not self.scene.phases.is_deaf:
            state = _State(self.scene.updates, caller())
            for each in shared:
                state.add(each)
            state.held = {id(module): weakref.ref(module)}
            self._states.append(state)

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Follows views of parameters, and what is done with states."""
        if not args or self._depth or not self.scene.updates or self.scene.phases.in_model():
            return
        name = getattr(function, "__name__", "")
        if (name == "detach" or function == DATA) and isinstance(args[0], nn.Parameter):
            self._viewed(out)
        elif name in _MIXES and len(args) > 1 and _share_memory(*args[:2]):
            self._mixed(name, args[0])
        elif self._states and name not in _TELLS:
            for state in self._holding(args):
                if name in _HANDS_ON and isinstance(out, torch.Tensor):
                    state.add(out)
                elif state.made == self.scene.updates:
                    state.used = True

    def _viewed(self, view: torch.Tensor) -> None:
        if self.scene.updating is not None or not view.is_floating_point():
            return
        where = caller()
        if where not in self._views:
            self._views[where] = _State(self.scene.updates, where, fewest=2)
            self._states.append(self._views[where])
        if not self._views[where].used:
            self._views[where].add(view)

    def _views_used(self, *_: object, **__: object) -> None:
        for state in self._views.values():
            state.used = True

    def _loads(self, module: nn.Module, given: Any, *_: object, **__: object) -> None:
        """Loading tensors that share the model's memory restores nothing, unless they were taken just now."""
        self._depth += 1
        pairs = [(p, given[name]) for name, p in module.named_parameters() if name in given]
        same = [each for p, each in pairs if _share_memory(p, each)]
        known = self._holding(same)
        kept = all(state.made < self.scene.updates for state in known)
        if self.scene.updates and kept and (known or (same and len(same) == len(pairs))):
            self.files.append(File("alias", known[0].where if known else caller(), detail="loaded back"))
        for state in known:
            state.used = True

    def _loaded(self, *_: object, **__: object) -> None:
        self._depth -= 1

    def _mixed(self, name: str, given: torch.Tensor) -> None:
        if any(_share_memory(given, p) for p in self.scene.reached):
            self.files.append(File("alias", caller(), detail=_MIXES[name]))

    def _holding(self, found: object) -> list[_State]:
        given = list(tensors(found))
        return [state for state in self._states if any(map(state.holds, given))]

    def saving(self, contents: Contents, file: object) -> None:
        before: list[set[int]] = []
        for state in self._holding(contents.value):
            here = {_address(each) for each in tensors(contents.value) if state.holds(each)}
            late = self.scene.updates - state.made
            if late and (state.saved or not state.used) and state.changed():
                self.files.append(File("alias", state.where, detail=f"saved {late} updates later"))
            elif here in before:  # parts may overlap
                self.files.append(File("alias", state.where, detail="kept twice in one file"))
            before.append(here)
            state.used = state.saved = True

    def update_ends(self, optimizer: Optimizer) -> None:
        self._views, self._depth = {}, 0
        self._states = [each for each in self._states if (each.saved or not each.used) and each.count() >= each.fewest]
        for state in self._states:
            if not state.told and not state.used and state.changed():
                state.told = True
                late = self.scene.updates + 1 - state.made
                self.files.append(File("alias", state.where, detail=f"kept for {counted(late, 'update')}"))
        self._see_records(set(held(optimizer)))

    def _see_records(self, updated: set[torch.Tensor]) -> None:
        """The best model so far may be another name for the model in training."""
        for frame in frames():
            for where, kept in records_kept(frame) if is_user(frame) else ():
                if (
                    isinstance(kept, nn.Module)
                    and where not in self._records
                    and not updated.isdisjoint(kept.parameters())
                ):
                    self._records.add(where)
                    self.files.append(File("alias", where, detail="kept by another name"))

    def facts(self) -> Iterator[SavedStateFacts]:
        yield SavedStateFacts(files=tuple(self.files))


def _weights(kept: Any) -> list[torch.Tensor]:
    """The tensors of a kept object; empty if it is deleted."""
    return list(kept.parameters()) if isinstance(kept, nn.Module) else list(tensors(kept))


def _share_memory(one: Any, other: Any) -> bool:
    return readable(one) and readable(other) and one.numel() > 0 and _address(one) == _address(other)


def _address(tensor: torch.Tensor) -> int:
    with aside():
        return tensor.data_ptr()
