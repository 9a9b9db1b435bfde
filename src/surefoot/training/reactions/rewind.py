"""Reports a loss that jumps, and goes back before it if the recipe says so."""

from __future__ import annotations

from collections.abc import Iterable

from surefoot.checkpoint.state import restore
from surefoot.records.log import LogRow
from surefoot.training.current_run import CurrentRun
from surefoot.training.guards.spike import Spikes
from surefoot.training.opening import Opened
from surefoot.training.reactions.reaction import TakenStep
from surefoot.training.reactions.step_log import Repetition
from surefoot.training.saved import Saved


class Rewind:
    """With `rewind`, a step whose loss jumps is taken back, and its samples are skipped from then on."""

    def __init__(self, opened: Opened, current: CurrentRun, saved: Saved, repetition: Repetition) -> None:
        self.step, self.data, self.current = opened.step, opened.data, current
        self.saved, self.repetition = saved, repetition
        self.spikes = _spikes(opened.standing.taken)

    def after_step(self, taken: TakenStep) -> None:
        row = taken.row
        if row.loss is None or not self.spikes.see(row.loss):
            return
        self.current.event("spike", f"the loss jumped to {row.loss:.4g}")
        if self.step.recipe.rewind:
            taken.stands = not self._rewind(row.step)

    def _rewind(self, step: int) -> bool:
        """Goes back to the last checkpoint before a step. Returns whether there was one."""
        self.saved.settle()  # the newest checkpoint may still be on its way to the disk
        checkpoint = self.saved.checkpoints.newest()
        if checkpoint is None:
            return False
        restore(self.step, checkpoint)
        rows = [row for row in self.step.world.from_first(self.current.run.rows) if row.step <= self.step.number]
        passed_over = (*self.current.run.passed_over, self.data.batch - 1)
        self.current.run = self.current.run.before_its_steps().after(rows)
        self.current.change(attempt=self.current.run.attempt + 1, passed_over=passed_over)
        self.current.write()  # before the next row is logged: a row of the new attempt needs a run that knows of it
        self.saved.best.begin(rows)
        self.repetition.forget()
        self.spikes = _spikes(rows)
        self.data.open(self.current.run)
        self.current.event("rewound", f"to step {self.step.number}; the samples of step {step} are skipped")
        return True


def _spikes(rows: Iterable[LogRow]) -> Spikes:
    return Spikes(row.loss for row in rows if row.loss is not None)
