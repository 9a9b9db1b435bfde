"""What a training asks of whoever limits, follows and explains its memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from surefoot.events.failsafe import Failsafe
from surefoot.step import Step
from surefoot.training.current_run import CurrentRun

if TYPE_CHECKING:
    from typing_extensions import Self


class MemoryGuard(Protocol):
    """A context around the whole training."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def aside(self) -> AbstractContextManager[None]:
        """Around what surefoot allocates for itself, such as the copies of a checkpoint: no memory limit holds it."""

    def know(self, step: Step, failsafe: Failsafe) -> None:
        """The step is built. What runs under `failsafe` is surefoot's own."""

    def step_begins(self) -> None:
        """The data of the next step is about to be loaded."""

    def note(self, error: BaseException, current: CurrentRun) -> None:
        """The training has failed. If memory ran out, the error and the run directory say what held it."""
