"""The run directory of a script that is watched."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from surefoot.checkpoint.lock import Lock
from surefoot.errors import RunError
from surefoot.events.phases import Phases
from surefoot.meters.log_rows import Rows
from surefoot.plain_files import make_folder, write_whole
from surefoot.records.log import LogRow
from surefoot.records.out_of_memory import SNAPSHOT, OutOfMemory
from surefoot.records.run import Run
from surefoot.records.watched import Watched, write_watched
from surefoot.techniques.deterministic import in_force
from surefoot.training.guards.drift import Drift
from surefoot.training.resume import environment
from surefoot.training.run_writer import RunWriter
from surefoot.units import counted

if TYPE_CHECKING:
    from typing_extensions import Self


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
        self.writer = RunWriter(self.run, rank=rank)
        self._lock = Lock(folder)  # held as long as this process lives: a report sees whether it was killed
        self.rows, self._drift, self._open = Rows(phases, self._append), Drift(), ExitStack()
        if Path(script).is_file() and self.writer.writes:
            write_whole(self.run.source, Path(script).read_bytes())

    def __enter__(self) -> Self:
        if self.writer.writes:
            self._lock.acquire()
        self.writer.write(self.run)
        self._open.enter_context(self.writer.log_of(self.run))
        self._open.callback(self.writer.sync)
        self._open.enter_context(self.rows)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        try:
            self._open.close()
        finally:
            if error is not None:
                self.run = replace(self.run, status="failed", reason=f"{type(error).__name__}: {error}".strip(": "))
                self.writer.note(self.run)

    @property
    def snapshot(self) -> Path | None:
        """Where a GPU's own memory snapshot goes. Only rank 0 writes one."""
        return self.folder / SNAPSHOT if self.writer.writes else None

    def keep_out_of_memory(self, record: OutOfMemory) -> OutOfMemory:
        """Writes what is known of an out-of-memory error, and returns it with the name of this directory."""
        record = replace(record, run=str(self.folder))
        self.writer.keep_out_of_memory(self.run, record)
        return record

    def end(self, seen: Watched) -> None:
        """Writes the record of the whole script."""
        self.run = replace(self.run, status="finished", parameters=seen.parameters, device=seen.device)
        self.writer.find(self.run, *seen.findings.findings, checks=seen.findings.checks)
        if self.writer.writes:
            write_watched(self.folder, seen)
        self.writer.last_events(self.run)
        self.writer.write(self.run)

    def _append(self, row: LogRow) -> None:
        self.writer.append(row)
        self.run = replace(self.run.after([row]), determinism=in_force())
        for kind, text in self._drift.see(row):
            self.writer.tell_of(self.run, row.step, kind, text)


def place() -> tuple[int, int]:
    """This process's rank and the number of ranks, as the process group says; before there is one, as torchrun says."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
