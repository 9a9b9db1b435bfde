"""Finds random tensors that were drawn when a model was built and are in no state_dict."""

from __future__ import annotations

from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.models.layout import unsaved
from surefoot.checks.samples.reseeding import DRAWS
from surefoot.events.callers import frames, is_user
from surefoot.source.frames import variables


class RandomTables(Observer):
    """Follows random numbers drawn in the constructor of a module to the tensors that the module keeps."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._drawn: WeakNotes[bool] = WeakNotes()
        self._tables: dict[nn.Module, tuple[str, ...]] = {}

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records draws in a constructor, and values computed from them."""
        if self.scene.updates or self.scene.phases.in_model():
            return
        if getattr(function, "__name__", "") in DRAWS:
            by_chance = kwargs.get("generator") is None and not isinstance(out, nn.Parameter) and _in_constructor()
        else:
            by_chance = len(self._drawn) > 0 and any(each in self._drawn for each in tensors(args))
        if by_chance:
            self._drawn.put((each for each in tensors(out) if not isinstance(each, nn.Parameter)), True)

    def model_found(self, model: nn.Module, prefix: str) -> None:
        if len(self._drawn):
            self._tables[model] = tuple(name for name, each in unsaved(model) if each in self._drawn)

    def of(self, model: nn.Module) -> tuple[str, ...]:
        """The names of a model's random tables."""
        return self._tables.get(model, ())


def _in_constructor() -> bool:
    """Is a user's module being built?"""
    building = (frame for frame in frames() if is_user(frame) and frame.f_code.co_name == "__init__")
    return any(isinstance(each, nn.Module) for frame in building for each in variables(frame).values())
