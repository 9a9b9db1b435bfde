"""Saves a checkpoint when one is due."""

from __future__ import annotations

import time

from surefoot.checkpoint.interval import Interval, Progress
from surefoot.checkpoint.state import state_of
from surefoot.errors import CheckpointError, DiskError
from surefoot.randomness import generators
from surefoot.training.current_run import CurrentRun
from surefoot.training.memory_guard import MemoryGuard
from surefoot.training.monitor import Monitor
from surefoot.training.opening import Opened
from surefoot.training.reactions.reaction import TakenStep
from surefoot.training.saved import Saved


class Save:
    """Saves at the interval `every`, and every step that is the best so far."""

    def __init__(
        self,
        opened: Opened,
        current: CurrentRun,
        saved: Saved,
        monitor: Monitor,
        memory: MemoryGuard,
        *,
        every: Interval | None,
    ) -> None:
        self.step, self.data = opened.step, opened.data
        self.current, self.saved, self.monitor, self.memory, self.every = current, saved, monitor, memory, every
        self.last = self._progress()
        """Where the run stood at its last save, or when it was opened."""

    def after_step(self, taken: TakenStep) -> None:
        is_best = self.saved.best.selection.step == taken.row.step
        if is_best or (self.every is not None and self.every.due(self.last, self._progress())):
            self.save()

    def save(self) -> None:
        """Saves a checkpoint of this step. If it cannot be written, the run continues and the older ones stay."""
        self.monitor.compare_replicas()  # a checkpoint of replicas that differ would make the fault permanent
        self.last, began = self._progress(), time.perf_counter()
        try:
            # no checkpoint may be newer than the log on disk
            self.step.world.from_first(self.current.writer.sync)
            with self.memory.aside():
                state = {**state_of(self.step), "generators": generators(), **self.data.state}
                self.saved.checkpoints.save(self.step.number, state)
        except (CheckpointError, DiskError) as error:
            self.saved.refuse(error)
        stood_still = self.current.run.save_seconds + time.perf_counter() - began
        self.current.change(saves=self.current.run.saves + 1, save_seconds=stood_still)
        self.saved.note()
        self.current.note()

    def _progress(self) -> Progress:
        return Progress(self.step.number, self.current.run.tokens, self.current.run.seconds)
