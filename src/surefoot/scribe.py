"""Scribe: what a run writes into its directory. Of many ranks the first one's writes; the others' keep silent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

import torch
from safetensors.torch import save_file, save_model
from torch.distributed.tensor import DTensor

from surefoot.checkpoint.consolidate import TensorsOf, whole_tensors
from surefoot.records.codec import to_json
from surefoot.records.event import Event, append_event
from surefoot.records.files import write_whole
from surefoot.records.finding import Finding, Findings
from surefoot.records.log import LogRow, append_row, mend
from surefoot.records.run import Run, write_run


class Scribe:
    """Every rank has one and calls it alike."""

    def __init__(self, run: Run, *, rank: int = 0) -> None:
        self.writes = rank == 0
        self.stacks = Path(run.path) / ("stacks.txt" if self.writes else f"stacks-{rank}.txt")
        self._log: IO[str] | None = None

    @contextmanager
    def log_of(self, run: Run) -> Iterator[None]:
        """A context in which rows may be appended."""
        if not self.writes:
            yield
            return
        mend(run.log)
        with run.log.open("a", encoding="utf-8") as self._log:
            yield

    def append(self, row: LogRow) -> None:
        if self._log is not None:
            append_row(self._log, row)

    def sync(self) -> None:
        """Until the log is on the disk."""
        if self._log is not None:
            self._log.flush()
            os.fsync(self._log.fileno())

    def write(self, run: Run) -> None:
        if self.writes:
            write_run(run)

    def tell_of(self, run: Run, step: int, kind: str, text: str, *, anyway: bool = False) -> None:
        """One event; `anyway`, if no other rank can be relied on to tell it."""
        if self.writes or anyway:
            append_event(run.events, Event(step, kind, text, f"{datetime.now():%Y-%m-%d %H:%M:%S}"))

    def find(self, run: Run, *findings: Finding, checks: Sequence[str] = (), anyway: bool = False) -> None:
        """What was found, and which checks have looked: by default those that found something."""
        if self.writes or anyway:
            looked = tuple(checks) or tuple(finding.check for finding in findings)
            write_whole(run.findings, to_json(Findings(run.recipe, looked, findings)) + "\n")

    def keep_weights(self, run: Run, model: torch.nn.Module) -> None:
        """The weights as one file. Ranks give their shards tensor by tensor; the first has all of it, once."""
        draft = run.weights.with_suffix(".part")
        sharded = any(isinstance(each, DTensor) for each in model.parameters())
        tensors = whole_tensors(model, keep=self.writes) if sharded else {}
        if not self.writes:
            return
        if sharded:
            save_file(tensors, draft, metadata={"format": "pt"})
        else:
            save_model(cast(Any, TensorsOf(model)), str(draft))
        os.replace(draft, run.weights)
