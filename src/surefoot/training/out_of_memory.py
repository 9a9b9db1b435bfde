"""The memory limit of a run, and what its directory says after an out-of-memory error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from surefoot.recipe.recipe import Recipe
from surefoot.records.out_of_memory import SNAPSHOT
from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.training.run_writer import RunWriter
from surefoot.world.world import World

if TYPE_CHECKING:
    from surefoot.explain.limited_memory import LimitedMemory


def limited(limit_bytes: int, recipe: Recipe, run: Run, world: World) -> LimitedMemory:
    """The limit of one rank. A compiled step is not followed: its operators would run one by one."""
    from surefoot.explain.limited_memory import LimitedMemory

    memory = LimitedMemory(limit_bytes, world.device, follow=recipe.compile == "off")
    memory.snapshot = Path(run.path) / SNAPSHOT if world.rank == 0 else None
    return memory


def note_out_of_memory(
    error: BaseException, run: Run, scribe: RunWriter, memory: LimitedMemory | None, step: Step | None
) -> None:
    """If this is an out-of-memory error: lets it carry what is known of it, and writes that to the run directory."""
    if not isinstance(error, RuntimeError | MemoryError):
        return
    from surefoot.explain.out_of_memory import attach, looked_at

    if step is None:
        record = looked_at(error, memory, torch.device("cpu"))
    else:
        record = looked_at(error, memory, step.device, [step.model], [step.optimizer])
    if record is None:
        return
    record = replace(record, run=run.path)
    attach(error, record)
    scribe.keep_out_of_memory(run, record)
