"""Traces the first updates of a script, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from surefoot.debug.runs.trace import Tracer, parameters_in
from surefoot.errors import RunError
from surefoot.recipe.kind import is_notebook
from surefoot.recipe.run_script import StopScript, run_script
from surefoot.records.codec import read_record, to_json
from surefoot.records.trace import Trace, Traced

TRACED, KEPT = "traced.json", "kept.safetensors"
STDERR = 2
"""The number of the file that every process has for errors."""


def trace_script(script: str, args: Sequence[str], *, updates: int, quiet: bool = False) -> Traced:
    """The first updates of a script, run as `python script` would. With `quiet`, what it prints goes to stderr."""
    return _in_process(script, args, updates=updates, quiet=quiet)[0]


def results_in(script: str, args: Sequence[str], *, update: int, operation: int) -> list[torch.Tensor]:
    """The results of one operation of an update. The script runs again up to there, and prints nothing."""
    return _in_process(script, args, updates=update, keep=operation, quiet=None)[1]


def _in_process(
    script: str, args: Sequence[str], *, updates: int, keep: int | None = None, quiet: bool | None
) -> tuple[Traced, list[torch.Tensor]]:
    """Runs it in a new process, so that no script sees the random state or the modules of another."""
    _refuse_what_python_cannot_read(script)
    with tempfile.TemporaryDirectory() as folder:
        spec = {"script": script, "args": list(args), "updates": updates, "keep": keep, "folder": folder}
        stdout = subprocess.DEVNULL if quiet is None else STDERR if quiet else None
        code = f"from {__name__} import main; main()"
        done = subprocess.run([sys.executable, "-c", code, json.dumps(spec)], stdout=stdout, check=False)
        if done.returncode:
            raise RunError(f"{script} ended with exit code {done.returncode} before {updates} updates were compared")
        kept = Path(folder) / KEPT
        tensors = load_file(kept) if kept.exists() else {}
        return read_record(Traced, Path(folder) / TRACED), [tensors[name] for name in sorted(tensors)]


def _refuse_what_python_cannot_read(script: str) -> None:
    """In a sentence; the new process would end in a traceback through this package."""
    if is_notebook(script):
        return
    try:
        compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise RunError(f"{script}{where}: Python cannot read it: {error.msg}") from None


class _Tracing(Tracer):
    """Ends a trace with every update, and the script after the last one."""

    def __init__(self, updates: int, keep: int | None) -> None:
        super().__init__()
        self._wanted, self._keep, self.traces = updates, keep, list[Trace]()
        self._choose()

    def _choose(self) -> None:
        """The operation to keep is one of the last update."""
        self.keep = self._keep if len(self.traces) == self._wanted - 1 else None

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.traces.append(self.end_step(len(self.traces) + 1))
        self._choose()
        if len(self.traces) >= self._wanted:
            raise StopScript


def main() -> None:
    """What the new process does: it writes the traces, and the tensors that are asked for, into a folder."""
    spec = json.loads(sys.argv[1])
    folder = Path(spec["folder"])
    with _Tracing(spec["updates"], spec["keep"]) as tracing:
        with suppress(StopScript):
            run_script(spec["script"], spec["args"])
        last = Trace(len(tracing.traces) + 1, parameters_in(tracing.phases.models))
    (folder / TRACED).write_text(to_json(Traced(spec["script"], (*tracing.traces, last)), indent=None))
    if tracing.kept:
        save_file({f"{at:04d}": each.contiguous().cpu() for at, each in enumerate(tracing.kept)}, folder / KEPT)
