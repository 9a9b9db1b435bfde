"""The findings of a run while it trains: bugs that checks find in a few steps, and state that no checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from surefoot.checks.facts import Facts
from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.checks.registry import CHECKS, judged
from surefoot.checks.run_throttle import FIRST, RunThrottle
from surefoot.checks.saved_state.rules import state_lost_on_reload
from surefoot.records.data_identity import DataIdentity
from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.training.current_run import CurrentRun
from surefoot.training.memory_guard import MemoryGuard
from surefoot.training.plain_state import PlainState, loss_of
from surefoot.training.reactions.reaction import TakenStep


class RunFindings:
    """Reports each finding once, and keeps all. If `plain` is None, state outside of the state_dict is not checked."""

    def __init__(
        self, step: Step, throttle: RunThrottle, plain: PlainState | None, current: CurrentRun, memory: MemoryGuard
    ) -> None:
        self.step, self.throttle, self.plain, self.current, self.memory = step, throttle, plain, current, memory
        self.found: list[Finding] = []
        self.last_batch: Any = None
        self.looked_at = 0

    def begin(self) -> None:
        """Call it before the first step of this process. Lost state is checked once, a few steps later."""
        self.looked_at = self.step.number + FIRST

    def around_step(self) -> AbstractContextManager[None]:
        """A context for the next step, in which checks may observe it."""
        return self.throttle.at(self.step.number + 1)

    def see_batch(self, batch: Any) -> None:
        """Keeps the last micro-batch until lost state was checked."""
        if self.plain is not None:
            self.last_batch = batch

    def after_step(self, taken: TakenStep) -> None:
        with self.memory.aside():
            new = self._new()
        if new:
            self.current.writer.find(self.current.run, *self.found, checks=tuple(CHECKS))
        for finding in new:
            self.current.event("finding", f"{finding.check}: {finding.seen}; {finding.remedy}")

    def _new(self) -> list[Finding]:
        """The findings that are new since the last step."""
        new = self.throttle.new_findings()
        if self.step.number == self.looked_at:
            new += self._lost_state(self.current.run.data_identity)
        self.found += new
        return new

    def _lost_state(self, identity: DataIdentity | None) -> Iterator[Finding]:
        saved = SavedStateFacts()
        if identity is not None:
            saved = replace(saved, unstable_samples=(identity.unstable, identity.items))
        if self.plain is not None:
            saved = replace(saved, lost_attributes=tuple(self.plain.lost(partial(loss_of, self.step, self.last_batch))))
        self.plain = self.last_batch = None
        return judged(state_lost_on_reload.check, Facts(saved))
