"""Watches the steps of a run while they are taken; with several ranks, also the ranks."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from surefoot.errors import ReplicaError
from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.training.current_run import CurrentRun
from surefoot.training.exchange import Told
from surefoot.training.guards.beats import Beats
from surefoot.training.guards.fingerprint import Fingerprints
from surefoot.training.guards.stragglers import Stragglers
from surefoot.training.guards.watchdog import Watchdog
from surefoot.training.reactions.reaction import TakenStep
from surefoot.world.world import agent_store

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE_SECONDS = 60.0
"""A shorter step is never reported as slow."""


class Monitor:
    """Reports a step that hangs, a rank that lags, and replicas that differ. Every rank has one."""

    def __init__(self, step: Step, current: CurrentRun) -> None:
        self.step, self.current, self.writer = step, current, current.writer
        self.rank, self.many = step.world.rank, step.world.ranks > 1
        self.beats = Beats(agent_store("beats") if self.many else None, rank=self.rank, ranks=step.world.ranks)
        self.stragglers, self.fingerprints = Stragglers(), Fingerprints(step)
        give_up = self._give_up if self.many else None
        self.watchdog = Watchdog(self.writer.stacks, self._slow, give_up=give_up, least_seconds=PATIENCE_SECONDS)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self.beats)
        self._open.enter_context(self.watchdog)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def own_seconds(self, seconds: float) -> float:
        """How many seconds of a step this rank spent on its own work."""
        return seconds * self.beats.own_share()

    def late(self, told: Told) -> str:
        """A message that names the rank that lags, or an empty string."""
        return self.stragglers.see(told.seconds, told.own_seconds) if self.many else ""

    def after_step(self, taken: TakenStep) -> None:
        self.watchdog.beat()
        self.beats.step = self.step.number
        if self.fingerprints.due(taken.row.seconds):
            self.compare_replicas()

    def compare_replicas(self) -> None:
        """Raises if the bits of one replica differ from the others."""
        finding = self.fingerprints.compare()
        if finding is not None:
            self.writer.find(self.current.run, finding)
            raise ReplicaError(f"{finding.seen}\n{finding.where}\n{finding.remedy}")

    def _slow(self, said: str) -> None:
        """Reports a step that takes far too long, and the rank that others wait for. The watchdog's thread calls it."""
        waits = self.beats.explain()
        said = "; ".join(filter(None, (said, waits.text, f"see {self.writer.stacks}")))
        self.writer.tell_of(self.current.run, self.step.number, "slow-step", said, anyway=waits.teller == self.rank)

    def _give_up(self, said: str) -> None:
        """Ends this rank, so that torchrun restarts all from the last checkpoint. The watchdog's thread calls it."""
        waits = self.beats.explain()
        finding = Finding(
            check="hanging-rank",
            severity="error",
            seen=f"{said[0].upper()}{said[1:]}: {waits.text or 'no rank stands out'}.",
            where=f"step {self.step.number + 1}; stacks of all threads: {self.writer.stacks}",
            why="A collective ends when all ranks have joined it. A rank that never joins keeps all others waiting.",
            remedy="Look at the machine of that rank. If you start torchrun with --max-restarts, the run resumes from "
            "its last checkpoint.",
        )
        tells = waits.teller == self.rank
        self.writer.find(self.current.run, finding, anyway=tells)
        self.writer.tell_of(self.current.run, self.step.number, "hanging-rank", finding.seen, anyway=tells)
        os._exit(1)
