"""The findings of a run while it trains: bugs that checks find in a few steps, and state that no checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from surefoot.checks.facts import Facts
from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.checks.registry import judged
from surefoot.checks.run_throttle import FIRST, RunThrottle
from surefoot.checks.saved_state.rules import state_lost_on_reload
from surefoot.records.data_identity import DataIdentity
from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.training.plain_state import PlainState, loss_of


class RunFindings:
    """Collects findings step by step. If `plain` is None, state outside of the state_dict is not checked."""

    def __init__(self, step: Step, glances: RunThrottle, plain: PlainState | None) -> None:
        self.step, self.glances, self.plain = step, glances, plain
        self.found: list[Finding] = []
        self.last_batch: Any = None
        self.looked_at = 0

    def begin(self) -> None:
        """Call it before the first step of this process. Lost state is checked once, a few steps later."""
        self.looked_at = self.step.number + FIRST

    def around_step(self) -> AbstractContextManager[None]:
        """A context for the next step, in which checks may observe it."""
        return self.glances.at(self.step.number + 1)

    def noting(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Passes micro-batches on. Keeps the last one until lost state was checked."""
        for batch in batches:
            if self.plain is not None:
                self.last_batch = batch
            yield batch

    def new(self, identity: DataIdentity | None) -> list[Finding]:
        """The findings that are new since the last step. `found` keeps all of them."""
        new = self.glances.new_findings()
        if self.step.number == self.looked_at:
            new += self._lost_state(identity)
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
