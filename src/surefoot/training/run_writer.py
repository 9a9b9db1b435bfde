"""Writes the run directory. Only rank 0 writes; on other ranks every method does nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from surefoot.checkpoint.consolidate import TensorsOf, whole_tensors
from surefoot.checkpoint.files import Fingerprint
from surefoot.errors import DiskError
from surefoot.plain_files import refusal, sync_file, sync_folder, write_whole
from surefoot.records.codec import to_json
from surefoot.records.event import Event, append_event
from surefoot.records.finding import Finding, Findings
from surefoot.records.layers import LayersRow, line_of_layers
from surefoot.records.log import LogRow, line_of, mend
from surefoot.records.out_of_memory import OutOfMemory, write_out_of_memory
from surefoot.records.plan import Plan, write_plan
from surefoot.records.run import Run, write_run
from surefoot.training.log_file import LogFile
from surefoot.training.weights import write_weights


class RunWriter:
    """Every rank has one and makes the same calls.

    If events, findings or the plan cannot be written, the run continues.
    """

    def __init__(self, run: Run, *, rank: int = 0) -> None:
        self.writes = rank == 0
        self.stacks = Path(run.path) / ("stacks.txt" if self.writes else f"stacks-{rank}.txt")
        self._log: LogFile[LogRow] | None = None
        self._layers: LogFile[LayersRow] | None = None
        self._events: list[Event] = []
        self._mended = False
        self._telling = threading.Lock()

    @contextmanager
    def log_of(self, run: Run) -> Iterator[None]:
        """A context in which rows can be appended to the log."""
        if not self.writes:
            yield
            return
        self._log = LogFile(run.log, line_of)
        try:
            yield
        finally:
            self._log.close()
            if self._layers is not None:
                self._layers.close()

    def append(self, row: LogRow) -> None:
        if self._log is not None:
            self._log.append(row)

    def append_layers(self, run: Run, row: LayersRow) -> None:
        """Appends to the file of layers, which the first row makes. A disk error is only reported."""
        if not self.writes:
            return
        try:
            if self._layers is None:
                self._layers = LogFile(run.layers, line_of_layers)
            self._layers.append(row)
        except DiskError as error:
            self.tell_of(run, row.step, "not-written", str(error))

    def sync(self) -> None:
        """Returns when the log is on disk."""
        if self._layers is not None:
            with suppress(DiskError):  # no later step depends on it
                self._layers.sync()
        if self._log is not None:
            self._log.sync()

    def write(self, run: Run) -> None:
        if self.writes:
            write_run(run)

    def note(self, run: Run) -> None:
        """Writes `run.json`. A disk error is only reported: the file matters only at the start and end of a run."""
        try:
            self.write(run)
        except DiskError as error:
            self.tell_of(run, run.steps, "not-written", str(error))

    def tell_of(self, run: Run, step: int, kind: str, text: str, *, anyway: bool = False) -> None:
        """Writes one event. `anyway` writes it on any rank. Events that cannot be written now are written later."""
        if self.writes or anyway:
            with self._telling:
                self._events.append(Event(step, kind, text, f"{datetime.now():%Y-%m-%d %H:%M:%S}"))
                with suppress(OSError):
                    self._tell(run)

    def last_events(self, run: Run) -> str:
        """Returns when the events are on disk: an empty string, or the reason why they are not."""
        with self._telling:
            try:
                self._tell(run)
                if self.writes and run.events.exists():
                    sync_file(run.events)
                    sync_folder(run.events.parent)
            except OSError as error:
                return str(refusal(run.events, error))
        return ""

    def _tell(self, run: Run) -> None:
        if not self._mended:
            mend(run.events)
            self._mended = True
        while self._events:
            append_event(run.events, self._events[0])
            del self._events[0]

    def find(self, run: Run, *findings: Finding, checks: Sequence[str] = (), anyway: bool = False) -> None:
        """Writes the findings, and which checks were run: by default those that found something."""
        if self.writes or anyway:
            looked = tuple(checks) or tuple(finding.check for finding in findings)
            try:
                write_whole(run.findings, to_json(Findings(run.recipe, looked, findings)) + "\n")
            except DiskError as error:
                self.tell_of(run, run.steps, "not-written", str(error), anyway=anyway)

    def keep_plan(self, run: Run, plan: Plan) -> None:
        """Writes the plan into the run directory. A disk error is only reported."""
        try:
            if self.writes:
                write_plan(Path(run.path), plan)
        except DiskError as error:
            self.tell_of(run, run.steps, "not-written", str(error))

    def keep_out_of_memory(self, run: Run, record: OutOfMemory) -> None:
        """Writes what is known of an out-of-memory error into the run directory. A disk error is only reported."""
        try:
            if self.writes:
                write_out_of_memory(Path(run.path), record)
        except DiskError as error:
            self.tell_of(run, run.steps, "not-written", str(error))

    def keep_weights(self, run: Run, model: torch.nn.Module) -> Fingerprint | None:
        """Writes the weights as one file. Shards are gathered tensor by tensor; only rank 0 holds the whole model."""
        sharded = any(isinstance(each, DTensor) for each in model.parameters())
        tensors = whole_tensors(model, keep=self.writes) if sharded else {}
        if not self.writes:
            return None
        return write_weights(run.weights, tensors if sharded else TensorsOf(model))
