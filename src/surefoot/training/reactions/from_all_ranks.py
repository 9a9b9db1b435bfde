"""Completes the row of a step with the facts that other ranks know, and learns which of them shall stop."""

from __future__ import annotations

import time
from dataclasses import replace

from surefoot.training.current_run import CurrentRun
from surefoot.training.exchange import tell_all
from surefoot.training.guards.signals import StopRequests
from surefoot.training.monitor import Monitor
from surefoot.training.opening import Opened
from surefoot.training.reactions.reaction import TakenStep


class FromAllRanks:
    """Gathers from all ranks the seconds and samples of a step, and the signals they received."""

    def __init__(self, opened: Opened, current: CurrentRun, monitor: Monitor, stop: StopRequests) -> None:
        self.step, self.data, self.current, self.monitor, self.stop = opened.step, opened.data, current, monitor, stop
        self.stopped = ""
        """The signal that ends the run after this step."""

    def after_step(self, taken: TakenStep) -> None:
        seconds = time.perf_counter() - taken.began
        told = tell_all(
            self.step.world,
            self.step,
            seconds=seconds,
            data_seconds=self.data.seconds,
            own_seconds=self.monitor.own_seconds(seconds),
            taken=self.data.batches.taken,
            hashes=self.data.batches.hashes,
            asked=self.stop.received is not None,
        )
        taken.row = replace(
            taken.row,
            samples=told.samples,
            samples_digest=f"{told.digest:016x}",
            batch_digest=f"{told.batch_digest:016x}",
            seconds=told.seconds,
            data_seconds=told.data_seconds,
        )
        if told.asked_to_stop:
            self.stopped = self.stop.received or f"a signal to rank {told.asked_to_stop[0]}"
        if late := self.monitor.late(told):
            self.current.event("straggler", late)

    def asked_to_stop(self) -> bool:
        """On many ranks, a request counts only when all ranks know it, so that all stop after the same step."""
        if self.step.world.ranks == 1 and self.stop.received is not None:
            self.stopped = self.stop.received
        return bool(self.stopped)
