"""The watcher: all observers together, around a loop; it gives the facts and what the rules say of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

from torch.optim import Optimizer

from surefoot.checks.coverage import covered
from surefoot.checks.engine.assembly import Kind, Observers, observers_in
from surefoot.checks.engine.attempts import noting_attempts
from surefoot.checks.engine.bus import Bus
from surefoot.checks.engine.functions import Functions
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts import Facts
from surefoot.checks.gather import gathered
from surefoot.checks.marks import marked
from surefoot.checks.models.own_names import OwnNames
from surefoot.checks.places import placed
from surefoot.checks.registry import allowed_checks, run_checks
from surefoot.events.phases import Phases
from surefoot.records.finding import Findings

_observers = cache(observers_in)


class Watcher:
    """Listens to `Phases`. While entered, it also follows losses, loaders, schedulers, scalers and files.

    Optimizers passed to it are known from the start. With `failsafe`, an exception inside a check stops the watching
    but not the loop.
    """

    def __init__(self, phases: Phases, *optimizers: Optimizer, failsafe: bool = False) -> None:
        self.scene = Scene(phases, optimizers, failsafe=failsafe)
        self._observers = Observers(_observers(__package__), self.scene)
        self.bus = Bus(self.scene, self._observers)
        self._entered, self._looking = ExitStack(), ExitStack()
        self.bus.listen()

    def __getitem__(self, kind: type[Kind]) -> Kind:
        """The observer of this class."""
        return self._observers[kind]

    def __enter__(self) -> Watcher:
        for each in self._observers:
            if each.stays:
                self._entered.enter_context(each)
        self._entered.push(self._looking)
        self._look()
        return self

    def _look(self) -> None:
        for each in self._observers:
            if not each.stays:
                self._looking.enter_context(each)
        self._looking.enter_context(Functions(self.scene, self.bus.hearing("called")).reported())

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def rest(self) -> None:
        """Stops watching. From now on it only counts updates and scheduler calls, and reads files."""
        self._looking.close()
        self.scene.rested_after = self.scene.rested_after or self.scene.updates
        self.scene.phases.only_models()
        self.bus.listen(resting=True)

    def look_again(self) -> None:
        """Watches as closely as at the start."""
        self.bus.listen()
        self._look()
        self.scene.phases.all_modules()
        self.scene.look_closely()

    def models(self) -> tuple[str, ...]:
        """The models that ran: their classes, and their own names where two are of one class."""
        return self[OwnNames].of_models()

    def facts(self, *, probes: bool = True) -> Facts:
        """Collects the facts seen so far. With `probes`, also disturbs copies of models and data sets."""
        return gathered(self.scene, self.bus, self._observers, probes=probes)

    def findings(self, *, recipe: str, allow: Iterable[str] = (), probes: bool = True) -> Findings:
        """The findings of all rules. If a check has crashed, returns the failure and no findings."""
        allowed, failsafe = allowed_checks(allow), self.scene.failsafe
        if not failsafe.failure:
            try:
                with noting_attempts() as skipped:
                    facts = self.facts(probes=probes)
                    found = placed(self._observers, run_checks(facts, recipe=recipe, allow=allowed))
                    found = replace(marked(found, self.scene.source), skipped=tuple(skipped))
                return covered(self.scene, self._observers, facts, self[OwnNames].apart(found))
            except Exception as error:
                failsafe.fail(error)
        return Findings(recipe, (), allowed=allowed, failure=failsafe.failure)
