"""The run directory of a script that is watched."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist

from surefoot.errors import RunError
from surefoot.events.phases import Phases
from surefoot.meters.log_rows import Rows
from surefoot.records.files import make_folder, write_whole
from surefoot.records.log import LogRow
from surefoot.records.out_of_memory import SNAPSHOT, OutOfMemory
from surefoot.records.run import Run
from surefoot.records.units import counted
from surefoot.records.watched import Watched, write_watched
from surefoot.training.guards.drift import Drift
from surefoot.training.resume import environment
from surefoot.training.run_writer import RunWriter


class WatchedRun:
    """Writes a log row after each update, alarms at once, and a record of all of it at the end. Only rank 0 writes."""

    def __init__(self, folder: Path, script: str, phases: Phases) -> None:
        rank, ranks = place()
        if rank == 0 and (folder / "run.json").exists():
            raise RunError(f"{folder} already holds a run; name another directory")
        make_folder(folder)
        self.folder = folder
        self.run = Run(
            path=str(folder),
            recipe=Path(script).name,
            about="a watched script",
            target=script,
            knobs={},
            status="running",
            parameters=0,
            device="",
            torch_version=str(torch.__version__),
            threads=torch.get_num_threads(),
            layout=counted(ranks, "rank"),
            environment=environment(),
        )
        self.scribe = RunWriter(self.run, rank=rank)
        self.rows, self._drift, self._open = Rows(phases, self._append), Drift(), ExitStack()
        if Path(script).is_file() and self.scribe.writes:
            write_whole(self.run.source, Path(script).read_bytes())

    def __enter__(self) -> Self:
        self.scribe.write(self.run)
        self._open.enter_context(self.scribe.log_of(self.run))
        self._open.callback(self.scribe.sync)
        self._open.enter_context(self.rows)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        try:
            self._open.close()
        finally:
            if error is not None:
                self.run = replace(self.run, status="failed", reason=f"{type(error).__name__}: {error}".strip(": "))
                self.scribe.note(self.run)

    @property
    def snapshot(self) -> Path | None:
        """Where a GPU's own memory snapshot goes. Only rank 0 writes one."""
        return self.folder / SNAPSHOT if self.scribe.writes else None

    def keep_out_of_memory(self, record: OutOfMemory) -> OutOfMemory:
        """Writes what is known of an out-of-memory error, and returns it with the name of this directory."""
        record = replace(record, run=str(self.folder))
        self.scribe.keep_out_of_memory(self.run, record)
        return record

    def end(self, seen: Watched) -> None:
        """Writes the record of the whole script."""
        self.run = replace(self.run, status="finished", parameters=seen.parameters, device=seen.device)
        self.scribe.find(self.run, *seen.findings.findings, checks=seen.findings.checks)
        if self.scribe.writes:
            write_watched(self.folder, seen)
        self.scribe.last_events(self.run)
        self.scribe.write(self.run)

    def _append(self, row: LogRow) -> None:
        self.scribe.append(row)
        self.run = self.run.after([row])
        for kind, text in self._drift.see(row):
            self.scribe.tell_of(self.run, row.step, kind, text)


def place() -> tuple[int, int]:
    """This process's rank and the number of ranks, as the process group says; before there is one, as torchrun says."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
