"""Chooses the number of loader processes of a run with `workers="auto"`."""

from __future__ import annotations

from surefoot.training.auto_workers import AutoWorkers, most_workers, why_none
from surefoot.training.current_run import CurrentRun
from surefoot.training.opening import Opened
from surefoot.training.reactions.reaction import TakenStep


class ChooseWorkers:
    """Follows the steps until a number is chosen. All ranks see the same seconds, so all choose the same."""

    def __init__(self, opened: Opened, current: CurrentRun) -> None:
        self.data, self.current = opened.data, current
        self.choosing = AutoWorkers(most=most_workers()) if opened.step.recipe.workers == "auto" else None

    def begin(self) -> None:
        """Chooses at once for data that may not have a number chosen."""
        if self.choosing is not None and (reason := why_none(self.data.batches.dataset)):
            self._settle(reason)

    def after_step(self, taken: TakenStep) -> None:
        if self.choosing is None:
            return
        workers = self.choosing.see(taken.row.seconds, taken.row.data_seconds)
        if workers is not None:
            self.data.load_with(workers, self.current.run)
        if self.choosing.said:
            self._settle(self.choosing.said)

    def _settle(self, choice: str) -> None:
        self.choosing = None
        self.current.change(choices=(*self.current.run.choices, choice))
        self.current.event("workers", choice)
