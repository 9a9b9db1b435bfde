"""The memory of a training: limits and follows it if asked to, and says what held it if it runs out."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from surefoot.events.failsafe import Failsafe
from surefoot.recipe.recipe import Recipe
from surefoot.records.out_of_memory import SNAPSHOT
from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.training.current_run import CurrentRun
from surefoot.world.world import World

if TYPE_CHECKING:
    from typing_extensions import Self

    from surefoot.debug.memory.limited_memory import LimitedMemory


class TrainingMemory:
    """The `MemoryGuard` of one rank. Without a limit, nothing is followed."""

    def __init__(self, limit_bytes: int | None, recipe: Recipe, run: Run, world: World) -> None:
        self.limited = None if limit_bytes is None else limited(limit_bytes, recipe, run, world)
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        if self.limited is not None:
            self._entered.enter_context(self.limited)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self.limited is None else self.limited.aside()

    def know(self, step: Step, failsafe: Failsafe) -> None:
        if self.limited is not None:
            failsafe.aside = self.limited.aside
            self.limited.know(step.model, None if step.ema is None else step.ema.tensors)

    def step_begins(self) -> None:
        if self.limited is not None:
            self.limited.step_begins()

    def note(self, error: BaseException, current: CurrentRun) -> None:
        if not isinstance(error, RuntimeError | MemoryError):
            return
        from surefoot.debug.memory.out_of_memory import attach, looked_at

        if (step := current.step) is None:
            record = looked_at(error, self.limited, torch.device("cpu"))
        else:
            record = looked_at(error, self.limited, step.device, [step.model], [step.optimizer])
        if record is None:
            return
        record = replace(record, run=current.run.path)
        attach(error, record)
        current.writer.keep_out_of_memory(current.run, record)


def limited(limit_bytes: int, recipe: Recipe, run: Run, world: World) -> LimitedMemory:
    """The limit of one rank. A compiled step is not followed: its operators would run one by one."""
    from surefoot.debug.memory.limited_memory import LimitedMemory

    memory = LimitedMemory(limit_bytes, world.device, follow=recipe.compile == "off")
    memory.snapshot = Path(run.path) / SNAPSHOT if world.rank == 0 else None
    return memory
