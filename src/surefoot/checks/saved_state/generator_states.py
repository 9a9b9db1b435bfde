"""Finds generator states in a checkpoint that a resumed run does not restore."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from surefoot.checks.engine.file_contents import Contents, items_of
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest
from surefoot.checks.engine.types import AnyLoader, Kwargs
from surefoot.checks.facts.saved_state import LostState, SavedStateFacts
from surefoot.checks.samples.unseeded_draws import GENERATORS
from surefoot.events.callers import asked_by_user, caller, is_user, near_frames, user_files, user_lines
from surefoot.source.frames import variables
from surefoot.source.saved_generators import Lines, unread_states

_DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_WORDS = 625
"""The number of words in the state of Python's generator."""


@dataclass
class _Read:
    """A loaded file with generator states."""

    where: str
    lines: Lines
    keys: list[str]
    update: int


@dataclass
class _Lost:
    """A generator state that nothing restores although training resumes."""

    state: LostState
    generator: torch.Generator | None
    """The torch generator; None for those of Python and numpy."""
    last: tuple[int, Any]
    """Its seed and state when last read."""
    drawn: bool = False


class GeneratorStates(Observer):
    """Whoever saves a generator state wants it restored. It matters if training uses that generator."""

    stays = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._read: _Read | None = None
        self._unread: list[tuple[LostState, int | None]] = []
        """States that are lost if their generator is used, with its seed if known."""
        self._lost: list[_Lost] = []

    def __enter__(self) -> GeneratorStates:
        self.follow(Optimizer, "load_state_dict", after=self._restores)
        self.follow(DataLoader, "__iter__", before=self._look, after=self._begins)
        for name, (module, _) in GENERATORS.items():
            self.follow(module, "seed", after=lambda *_, name=name, **__: self._seeds(name))
        return self

    def file_loaded(self, contents: Contents) -> None:
        loaded = contents.value
        if not isinstance(loaded, dict) or not asked_by_user():
            return
        keys = [
            key for key, each in loaded.items() if type(key) is str and any(map(_is_state, (each, *items_of(each))))
        ]
        if keys:
            self._read = _Read(caller(), user_lines(), keys, self.scene.updates)

    def _restores(self, _: object, optimizer: Optimizer, *__: object, **___: object) -> None:
        """Training resumes if the optimizer is new. One that has made updates only returns to the best weights."""
        read = self._read
        if read is None or read.update != self.scene.updates or self.scene.updates_of(optimizer):
            return
        self._read = None
        unread = unread_states(read.lines, user_files(), read.keys)
        states = [LostState(read.where, key, whose) for key, whose in unread]
        found = [_generator(each.whose) for each in states]
        self._unread = [(s, g.initial_seed() if g else None) for s, g in zip(states, found, strict=True)]

    def _seeds(self, name: str) -> None:
        if not self.scene.phases.is_deaf:
            self._unread = [each for each in self._unread if each[0].whose != name]
            self._lost = [each for each in self._lost if each.drawn or each.state.whose != name]

    def update_begins(self, optimizer: Optimizer) -> None:
        unread, self._unread = self._unread, []
        self._look()
        for state, seed in unread:
            generator = _generator(state.whose)
            same = generator is not None and seed in (None, generator.initial_seed())
            if same or state.whose in GENERATORS:
                self._lost.append(_Lost(state, generator, _state_of(state.whose, generator)))

    def _look(self, *_: object) -> None:
        """Checks whether generators were used since the last look. One that was seeded again needs no state."""
        for lost in [each for each in self._lost if not each.drawn]:
            before, lost.last = lost.last, _state_of(lost.state.whose, lost.generator)
            if before[0] != lost.last[0]:
                self._lost.remove(lost)
            else:
                lost.drawn = before[1] != lost.last[1]

    def _begins(self, _: object, loader: AnyLoader) -> None:
        """A pass begins. The seed that loaders draw for workers does not count as use; an order does.

        Only a loader with workers draws its order at once.
        """
        if not (loader.num_workers and isinstance(loader.sampler, _DRAWING)):
            self._forget()

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if self._lost and not torch.is_grad_enabled():
            self._forget()

    def _forget(self) -> None:
        """Ignores draws since the last look: they were not for training."""
        for lost in self._lost:
            lost.last = lost.last[0], _state_of(lost.state.whose, lost.generator)[1]

    def facts(self) -> Iterator[SavedStateFacts]:
        yield SavedStateFacts(lost_states=tuple(each.state for each in self._lost if each.drawn))


def _is_state(value: object) -> bool:
    """Is this the state of a generator of torch on the CPU, of Python or of numpy?"""
    if isinstance(value, torch.Tensor):
        return (
            value.dtype == torch.uint8 and value.dim() == 1 and len(value) == len(torch.default_generator.get_state())
        )
    if not isinstance(value, tuple) or len(value) < 3:
        return False
    python = isinstance(value[1], tuple) and len(value[1]) == _WORDS
    return python or (value[0] == "MT19937" and len(value) == 5)


def _state_of(whose: str, generator: torch.Generator | None) -> tuple[int, Any]:
    """The seed of a generator, if known, and its state."""
    if generator is not None:
        return generator.initial_seed(), digest(generator.get_state())
    return 0, str(GENERATORS[whose][1]())


def _generator(path: str) -> torch.Generator | None:
    """The torch generator with this path, or at least this last name, in the running functions."""
    if path == "torch":
        return torch.default_generator
    first, *names = path.split(".")
    for frame in near_frames():
        if is_user(frame):
            known = variables(frame)
            found = known.get(first)
            for name in names:
                found = getattr(found, name, None)
            beside = getattr(known.get("self"), "__dict__", {})
            for each in (found, known.get(path.rpartition(".")[2]), beside.get(path.rpartition(".")[2])):
                if isinstance(each, torch.Generator):
                    return each
    return None
