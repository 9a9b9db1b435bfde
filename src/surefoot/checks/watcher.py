"""The watcher: all observers together, around a loop; it gives the facts and what the rules say of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Self, TypeVar

from torch.optim import Optimizer

from surefoot.checks.coverage import covered
from surefoot.checks.engine.assembly import made, observers_in
from surefoot.checks.engine.attempts import noting_attempts
from surefoot.checks.engine.bus import Bus
from surefoot.checks.engine.functions import Functions
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts import Facts
from surefoot.checks.gather import gathered
from surefoot.checks.places import placed
from surefoot.checks.registry import allowed_checks, run_checks
from surefoot.events.phases import Phases
from surefoot.records.finding import Findings

Kind = TypeVar("Kind", bound=Observer)
_observers = cache(observers_in)


class Watcher:
    """Listens to `Phases`. While entered, it also follows losses, loaders, schedulers, scalers and files.

    Optimizers passed to it are known from the start. With `failsafe`, an exception inside a check stops the watching
    but not the loop.
    """

    def __init__(self, phases: Phases, *optimizers: Optimizer, failsafe: bool = False) -> None:
        self.scene = Scene(phases, optimizers, failsafe=failsafe)
        self._observers = made(_observers(__package__), self.scene)
        self.bus = Bus(self.scene, self._observers.values())
        self._entered, self._looking = ExitStack(), ExitStack()
        self.rested_after: int | None = None
        """The number of updates that were watched closely, if later ones were not."""
        self.bus.listen()

    def __getitem__(self, kind: type[Kind]) -> Kind:
        """The observer of this class."""
        found: Kind = self._observers[kind]  # type: ignore[assignment]
        return found

    def __enter__(self) -> Self:
        for each in self._observers.values():
            if each.stays:
                self._entered.enter_context(each)
        self._entered.push(self._looking)
        self._look()
        return self

    def _look(self) -> None:
        for each in self._observers.values():
            if not each.stays:
                self._looking.enter_context(each)
        self._looking.enter_context(Functions(self.scene, self.bus.hearing("called")).reported())

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def rest(self) -> None:
        """Stops watching. From now on it only counts updates and scheduler calls, and reads files."""
        self._looking.close()
        self.rested_after = self.rested_after or self.scene.updates
        self.scene.phases.only_models()
        self.bus.listen(resting=True)

    def look_again(self) -> None:
        """Watches as closely as at the start."""
        self.bus.listen()
        self._look()
        self.scene.phases.all_modules()
        self.scene.look_closely()

    def facts(self, *, probes: bool = True) -> Facts:
        """Collects the facts seen so far. With `probes`, also disturbs copies of models and data sets."""
        return gathered(self, probes=probes)

    def findings(self, *, recipe: str, allow: Iterable[str] = (), probes: bool = True) -> Findings:
        """The findings of all rules. If a check has crashed, returns the failure and no findings."""
        allowed, failsafe = allowed_checks(allow), self.scene.failsafe
        if not failsafe.failure:
            try:
                with noting_attempts() as skipped:
                    facts = self.facts(probes=probes)
                    found = run_checks(facts, recipe=recipe, allow=allowed)
                return covered(self, facts, placed(self, replace(found, skipped=tuple(skipped))))
            except Exception as error:
                failsafe.fail(error)
        return Findings(recipe, (), allowed=allowed, failure=failsafe.failure)
