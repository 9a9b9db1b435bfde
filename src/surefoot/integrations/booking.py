"""Booking: measures and checks one training by another library, and keeps it as a run directory."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.plain_files import open_to_append
from surefoot.recipe.credentials import without_credentials
from surefoot.records.plan import Plan, write_plan
from surefoot.records.watched import Watched
from surefoot.reports.console import PlainConsole
from surefoot.reports.findings import findings_text
from surefoot.watch import Watching

if TYPE_CHECKING:
    from torch.optim import Optimizer

LOGGED = "logged.jsonl"
"""Where a run directory keeps the values that the training itself logs."""


class Booking:
    """One training, from `begin` to `end`. `watched` is the record of it after its end.

    It writes what `surefoot watch --run` writes. If the directory holds a run, the next one goes to `mine-2`. A `plan`
    is kept beside the measurements, so that a report compares the two. `allow` names checks to silence; with
    `check_all`, the checks look at every step.
    """

    def __init__(
        self, run: str | Path, *, plan: Plan | None = None, allow: Iterable[str] = (), check_all: bool = False
    ) -> None:
        self.folder = self._wanted = Path(run)
        self.watched: Watched | None = None
        self._plan, self._allow, self._check_all = plan, tuple(allow), check_all
        self._watching: Watching | None = None

    def begin(self, *optimizers: Optimizer) -> None:
        """Starts to watch. Optimizers that exist already are given; later ones are heard of."""
        if self._watching is not None:
            self.end(error=RuntimeError("another training began before this one ended"))
        self.folder = _free(self._wanted)
        watching = Watching(
            _script(), *optimizers, check_all=self._check_all, allow=self._allow, keep=self.folder
        ).__enter__()
        self._watching = watching
        atexit.register(self._left)
        if self._plan is not None and self._writes:
            write_plan(self.folder, self._plan)

    def end(self, error: BaseException | None = None) -> None:
        """Stops watching, writes the record and prints the findings; after an error, only notes that it failed."""
        watching = self._watching
        if watching is None:
            return
        if error is None:
            watching.ran_to_its_end()
        writes, self._watching = self._writes, None
        atexit.unregister(self._left)
        watching.__exit__(None if error is None else type(error), error, None)
        if error is None:
            self.watched = watching.record()
            if writes:
                _print(self.watched, self.folder)

    def keep_settings(self, values: Mapping[str, Any]) -> None:
        """Keeps the settings of the training, for the report."""
        if self._watching is not None and self._watching.kept is not None:
            kept = self._watching.kept
            kept.run = replace(kept.run, settings=kept.run.settings | {name: _plain(values[name]) for name in values})

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Appends values that the training logs itself. They are kept, not judged."""
        if self._writes:
            row = json.dumps({"step": step, **{name: _plain(value) for name, value in values.items()}})
            with open_to_append(self.folder / LOGGED) as file:
                file.write(row + "\n")

    @property
    def _writes(self) -> bool:
        """Whether this process writes the run directory: rank 0, during a training."""
        kept = None if self._watching is None else self._watching.kept
        return kept is not None and kept.writer.writes

    def _left(self) -> None:
        """The process ends before the training: by an error that nobody caught, or without the call that ends it."""
        error = getattr(sys, "last_value", None)
        self.end(error=error or RuntimeError("the program ended before its training did"))


def _free(wanted: Path) -> Path:
    """A directory without a run, so that a script can be started again as it is. Only rank 0 writes, and chooses."""
    from surefoot.training.watched_run import place

    names = chain([wanted], (wanted.with_name(f"{wanted.name}-{number}") for number in count(2)))
    return wanted if place()[0] else next(name for name in names if not (name / "run.json").exists())


def _script() -> str:
    """The script that trains, as a person would name it from here."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.relpath(file) if file else "this session"


def _plain(value: Any) -> str | int | float | bool | None:
    """The value as a record keeps it. The credentials in a URL are left out."""
    return value if value is None or isinstance(value, int | float | bool) else without_credentials(str(value))


def _print(watched: Watched, folder: Path) -> None:
    console = PlainConsole()
    console.print(findings_text(watched.findings, infos="number"))
    console.print(f"all of it: surefoot report {folder}", style="dim", highlight=False)
