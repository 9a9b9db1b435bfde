"""sweep: trials of a recipe that Optuna chooses. What does not fit, or exceeds the budget, is pruned by its plan.

A sweep is a folder: `sweep.json` with every trial that has ended, and a run directory for each that ran. Optuna's study
is made anew for each trial, from the record and a seed that follows from the trial's number. So a sweep that was killed
resumes to the trials that it would have made without the kill: the trial that was cut resumes bit for bit, as any run.
"""

from __future__ import annotations

import signal
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.checkpoint.lock import Lock
from surefoot.costs.budget import limits_of
from surefoot.errors import (
    BudgetError,
    MissingPackage,
    NonFinite,
    RecipeError,
    RunError,
    SurefootError,
    installing,
)
from surefoot.integrations.sweep.space import Axis, axes_of
from surefoot.plain_files import make_folder
from surefoot.recipe.load import load_recipe
from surefoot.recipe.recipe import Knob, Recipe
from surefoot.records.log import LogRow
from surefoot.records.plan import Plan
from surefoot.records.run import read_run
from surefoot.records.search import Budget
from surefoot.records.sweep import Sweep, SweepTrial, read_sweep, write_sweep
from surefoot.reports.budget import limit_line
from surefoot.ways.plan import plan
from surefoot.ways.train import train
from surefoot.world.this_machine import present

TENTHS = 10
"""Without held-out data, trials are compared by the mean loss of each tenth of the run."""


def sweep(
    target: str,
    words: Sequence[str],
    *,
    to: str,
    trials: int = 20,
    on: str | None = None,
    budget: Budget | None = None,
    best: str = "-loss",
    early_stopping: bool = True,
    seed: int = 0,
    tell: Callable[[SweepTrial], object] = lambda trial: None,
) -> Sweep:
    """Makes trials until there are so many, and returns all of them.

    `words` are knobs; one of `LOW..HIGH` or `A,B,C` varies. Trials are planned for the GPUs `on`, or for this machine.
    One whose plan exceeds the device or the `budget` does not run. `best` is the metric, with - before it if lower is
    better. `-loss` is the held-out loss, or the training loss of a recipe without held-out data. With `early_stopping`,
    a trial ends that is worse than the median of the others after as many steps.

    The same call resumes a sweep that was killed. `tell` hears of each trial as it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RunError("a sweep stops trials by signals, which Python delivers in the main thread only: call it there")
    axes, fixed = axes_of(target, words)
    asked = Sweep(to, target, tuple(words), best, seed, early_stopping, on, budget or Budget(), fixed)
    folder = Path(to)
    make_folder(folder)
    with Lock(folder):
        kept = read_sweep(folder)
        if kept is None:
            if any(each.name != "lock" for each in folder.iterdir()):
                raise RunError(f"{to} is not empty and holds no sweep; name another folder with --to")
            kept = asked
        elif replace(kept, path=to, trials=(), fixed={}) != replace(asked, fixed={}):
            raise RunError(f"{to} holds a sweep with other knobs, limits or seed; name another folder with --to")
        return _Sweeping(replace(kept, path=to), axes, tell).until(trials)


class _Interrupted(Exception):
    """The user stopped a trial: it saved a checkpoint, and the sweep resumes there."""


class _Sweeping:
    """The trials of a sweep, one after the other."""

    def __init__(self, record: Sweep, axes: list[Axis], tell: Callable[[SweepTrial], object]) -> None:
        self.record, self.axes, self._tell = record, axes, tell
        self._library = _library()

    def until(self, trials: int) -> Sweep:
        write_sweep(self.record)
        try:
            while len(self.record.trials) < trials:
                made = self._trial(len(self.record.trials))
                self.record = replace(self.record, trials=(*self.record.trials, made))
                write_sweep(self.record)
                self._tell(made)
        except _Interrupted:
            pass
        return self.record

    def _trial(self, number: int) -> SweepTrial:
        asked = self._study(number).ask()
        knobs = {axis.name: axis.suggested(asked) for axis in self.axes}
        same = next((each for each in self.record.trials if each.knobs == knobs), None)
        if same is not None:
            return replace(same, number=number, reason=f"as trial {same.number}", seconds=0.0)
        trial = SweepTrial(number, knobs, "refused")
        try:
            recipe = load_recipe(self.record.target, _words({**self.record.fixed, **knobs}))
            trial, planned, exceeded = self._planned(trial, recipe)
        except RecipeError as error:
            return replace(trial, reason=str(error))
        self.record = replace(self.record, fixed={name: recipe.knobs[name] for name in self.record.fixed})
        if exceeded:
            return replace(trial, state="pruned by the plan", reason=exceeded)
        return self._trained(trial, recipe, planned, asked)

    # ------------------------------------------------------------------------------------- before it runs

    def _study(self, number: int) -> Any:
        """Optuna's study of the trials that have ended."""
        library = self._library
        study = library.create_study(
            direction="minimize" if self.record.lower_is_better else "maximize",
            sampler=library.samplers.TPESampler(seed=1_000_003 * self.record.seed + number),
            pruner=library.pruners.MedianPruner() if self.record.early_stopping else library.pruners.NopPruner(),
        )
        distributions = {axis.name: axis.distribution(library) for axis in self.axes}
        for each in self.record.trials:
            finished = each.state == "finished" and each.value is not None and each.value == each.value
            study.add_trial(
                library.trial.create_trial(
                    params=each.knobs,
                    distributions=distributions,
                    value=each.value if finished else None,
                    state=library.trial.TrialState.COMPLETE if finished else library.trial.TrialState.PRUNED,
                    intermediate_values=dict(zip(each.at, each.values, strict=True)),
                )
            )
        return study

    def _planned(self, trial: SweepTrial, recipe: Recipe) -> tuple[SweepTrial, Plan | None, str]:
        """The trial with what its plan says, the plan, and the limits that it exceeds."""
        try:
            planned = plan(recipe, on=self.record.on or present(1))
        except (RecipeError, BudgetError):
            raise
        except Exception as error:  # what cannot be planned may still train
            return replace(trial, reason=f"not planned: {error}"), None, ""
        limits = limits_of(planned, self.record.budget)
        amounts = {each.name: each.amount for each in limits}
        cost = planned.cost
        trial = replace(
            trial,
            memory_bytes=amounts.get("memory", float(planned.live_bytes)),
            days=None if cost is None else cost.days,
            dollars=None if cost is None else cost.dollars,
        )
        return trial, planned, "; ".join(limit_line(each) for each in limits if not each.holds)

    # ------------------------------------------------------------------------------------- while it runs

    def _trained(self, trial: SweepTrial, recipe: Recipe, planned: Plan | None, asked: Any) -> SweepTrial:
        folder = Path(self.record.path) / f"trial-{trial.number:03d}"
        compared = _Compared(recipe, self.record, asked)
        if (folder / "run.json").exists():
            for row in read_run(folder).rows():
                compared.add(row)
        if compared.stopped_at is None:
            try:
                run = train(recipe, path=str(folder), plan=planned, tell=lambda _, row: compared.add(row, stops=True))
            except Exception as error:
                if isinstance(error, SurefootError) and not isinstance(error, NonFinite):
                    raise  # of the disk, the folder, the recipe: no other setting would do better
                why = f"{type(error).__name__}: {error}".partition("\n")[0]
                return replace(trial, state="failed", reason=why, steps=len(compared.standing()), run=str(folder))
            if run.status == "interrupted" and compared.stopped_at is None:
                raise _Interrupted
        rows = compared.standing()
        return replace(
            trial,
            state="finished" if compared.stopped_at is None else "stopped early",
            value=compared.value(),
            steps=len(rows),
            seconds=sum(row.seconds for row in rows),
            run=str(folder),
            at=tuple(compared.told),
            values=tuple(compared.told.values()),
        )


class _Compared:
    """What a trial is compared by, from the rows of its log; it asks Optuna whether the trial has fallen behind."""

    def __init__(self, recipe: Recipe, record: Sweep, asked: Any) -> None:
        self.recipe, self.metric, self.asked = recipe, record.metric, asked
        self.steps = recipe.steps() or 0
        self.rows: dict[int, LogRow] = {}
        self.told: dict[int, float] = {}
        self.stopped_at: int | None = None
        """The step after which it had fallen behind."""

    def add(self, row: LogRow, *, stops: bool = False) -> None:
        """Takes a row. If the trial has fallen behind, and `stops`, the training ends after this step."""
        if self.stopped_at is not None:
            return
        self.rows[row.step] = row
        found = self._value_at(row)
        if found is None or row.step in self.told or row.step >= self.steps:
            return
        self.told[row.step] = found
        self.asked.report(found, row.step)
        if self.asked.should_prune():
            self.stopped_at = row.step
            if stops:
                signal.raise_signal(signal.SIGTERM)  # the run saves a checkpoint and ends

    def standing(self) -> list[LogRow]:
        return [row for step, row in sorted(self.rows.items()) if self.stopped_at is None or step <= self.stopped_at]

    def value(self) -> float | None:
        """Of the last evaluation; else the mean loss of the last tenth."""
        if self.recipe.evaluation is None:
            return self._mean_loss(self.standing()[-self._tenth :])
        found = [value for row in self.standing() if (value := self._evaluated(row)) is not None]
        if not found:
            raise RecipeError(
                f"no evaluation has a {self.metric!r}: name one of the recipe's metrics, or -loss, with evaluate_every"
            )
        return found[-1]

    def _value_at(self, row: LogRow) -> float | None:
        if self.recipe.evaluation is not None:
            return self._evaluated(row)
        return self._mean_loss(self.standing()[-self._tenth :]) if row.step % self._tenth == 0 else None

    @property
    def _tenth(self) -> int:
        return max(1, self.steps // TENTHS)

    def _evaluated(self, row: LogRow) -> float | None:
        return row.evaluation_loss if self.metric == "loss" else row.metrics.get(self.metric)

    def _mean_loss(self, rows: Sequence[LogRow]) -> float | None:
        if self.metric != "loss":
            raise RecipeError(f"the recipe has no held-out data, so a sweep compares -loss, not {self.metric!r}")
        losses = [row.loss for row in rows if row.loss is not None]
        return statistics.fmean(losses) if losses else None


def _words(knobs: Mapping[str, Knob]) -> list[str]:
    return [f"{name}={'none' if value is None else value}" for name, value in knobs.items()]


def _library() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingPackage(f"a sweep needs optuna: {installing('sweep', 'optuna')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
