"""Keeps the best step of a run: its checkpoint stays, and its weights are those of the run."""

from __future__ import annotations

from collections.abc import Iterable

from surefoot.checkpoint.store import Checkpoints
from surefoot.recipe.recipe import Recipe
from surefoot.records.log import LogRow
from surefoot.training.current_run import CurrentRun
from surefoot.training.reactions.reaction import TakenStep
from surefoot.training.selection import Selection


class Best:
    """Follows the evaluations of a run. Without `best` in the recipe, no step is the best one."""

    def __init__(self, recipe: Recipe, current: CurrentRun, checkpoints: Checkpoints) -> None:
        self.recipe, self.current, self.checkpoints = recipe, current, checkpoints
        self.selection = Selection(recipe)

    def begin(self, rows: Iterable[LogRow]) -> None:
        """Chooses from the rows of the steps so far."""
        self.selection = Selection(self.recipe, rows)
        if self.selection.step:
            self._note()

    def after_step(self, taken: TakenStep) -> None:
        if self.selection.see(taken.row):
            self._note()

    def _note(self) -> None:
        self.checkpoints.keep.add(self.selection.step)
        self.current.change(best_step=self.selection.step, best_value=self.selection.value)
        self.current.note()  # a mirror copies this file with the checkpoint and reads there which one is best
