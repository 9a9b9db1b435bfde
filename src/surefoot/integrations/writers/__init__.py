"""Writers: send every log row to another tool while the run trains. One tool per file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import fields
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from surefoot.errors import MissingPackage, RunError, installing, known_names
from surefoot.records.log import LogRow
from surefoot.records.run import Run

if TYPE_CHECKING:
    from typing_extensions import Self

NAMES = ("tensorboard", "wandb", "mlflow")


class Writer(Protocol):
    """The class in each file of this folder. Only opening a writer imports its package."""

    def start(self, run: Run) -> None:
        """Opens a run in the tool."""

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Adds the numbers of one step."""

    def end(self, *, finished: bool) -> None:
        """Closes the tool's run."""


class Writers:
    """Enter it, then call it after every step. A writer that fails is dropped with a warning; the run continues."""

    def __init__(self, writers: dict[str, Writer]) -> None:
        self._writers = dict(writers)
        self._started = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, run: Run, row: LogRow) -> None:
        if not self._started:
            self._started = True
            self._each(lambda writer: writer.start(run))
        numbers = numbers_of(row)
        self._each(lambda writer: writer.write(row.step, numbers))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started:
            self._each(lambda writer: writer.end(finished=kind is None))

    def _each(self, tell: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            try:
                tell(writer)
            except Exception as error:
                del self._writers[name]
                said = f"{type(error).__name__}: {error}"
                warnings.warn(f"{name} failed and gets no more rows; the run continues: {said}", stacklevel=4)


def open_writers(names: Iterable[str]) -> Writers:
    """Imports the packages of these writers and opens them."""
    return Writers({name: _open(name) for name in names})


def numbers_of(row: LogRow) -> dict[str, float]:
    """The numbers of a row by name, without the step number and missing values."""
    values = {field.name: getattr(row, field.name) for field in fields(row) if field.name != "step"}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def _open(name: str) -> Writer:
    if name not in NAMES:
        raise RunError(f"no writer is called {name!r}; {known_names(name, NAMES)}")
    try:
        writer: Writer = import_module(f"surefoot.integrations.writers.{name}").Writer()
    except ImportError as error:
        raise MissingPackage(f"--log {name} needs {name}: {installing('log', name)} ({error})") from error
    return writer
