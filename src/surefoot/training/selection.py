"""Which evaluation of a run was the best, and whether to wait for a better one. It depends on the log alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.records.log import LogRow


class Selection:
    """Sees the rows of a run in order. A resumed run shows it the rows up to its checkpoint, so it chooses the same."""

    def __init__(self, recipe: Recipe, rows: Iterable[LogRow] = ()) -> None:
        self.name, self.patience = recipe.best, recipe.patience
        self.step, self.value, self.since = 0, math.nan, 0
        """The best step and its value, and the evaluations since then. Step 0 means that there is none yet."""
        for row in rows:
            self.see(row)

    def see(self, row: LogRow) -> bool:
        """Whether this step is the best so far."""
        if self.name is None or (row.evaluation_loss is None and not row.metrics):
            return False
        value = _value(row, self.name.removeprefix("-"))
        lower = self.name.startswith("-")
        better = not math.isnan(value) and (not self.step or (value < self.value if lower else value > self.value))
        if better:
            self.step, self.value, self.since = row.step, value, 0
        else:
            self.since += 1
        return better

    @property
    def gives_up(self) -> bool:
        """Whether `patience` evaluations in a row were no better."""
        return self.patience is not None and self.since >= self.patience

    def __str__(self) -> str:
        return f"{self.name.removeprefix('-') if self.name else ''} {self.value:.6g} at step {self.step}"


def _value(row: LogRow, name: str) -> float:
    if name == "loss" and row.evaluation_loss is not None:
        return row.evaluation_loss
    if name not in row.metrics:
        raise RecipeError(f"best={name!r} is not among the metrics of the recipe: {', '.join(row.metrics)}")
    return row.metrics[name]
