"""Runs a validation: one child process for each recipe, each with a time limit. This process uses no device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from surefoot.errors import RecipeError, WorldError, known_names
from surefoot.records.codec import read_record, to_plain
from surefoot.records.validation import Machine, Part, Parts, Row, Validation, WhatFits
from surefoot.units import seconds_text
from surefoot.validation.cases import ALL_REDUCE, MODELS, PARTS, Case, cases_for, failed
from surefoot.validation.reasons import reason_of_end

Made = TypeVar("Made")
Tell = Callable[[int, int, Row], None]
SHARE_OF_SEARCHES = 0.2
"""The part of the time that is kept for searches of what fits."""
START_SECONDS = 4.0
"""About what a process needs before it begins: torch is large."""
LEAST_LIMIT = 300.0
"""No recipe is stopped sooner: a machine that others use too must not look like a failure."""
MACHINE_LIMIT = 300.0
PARTS_LIMIT = 300.0
"""For all parts of the preflight that one process tries."""


class Failed(Exception):
    """A child process did not give a result. The message says why."""


def validate(
    *,
    minutes: float = 10,
    only: Collection[str] = (),
    cases: Sequence[Case] | None = None,
    models: Sequence[str] | None = None,
    tell_machine: Callable[[Machine], None] = lambda machine: None,
    tell_part: Callable[[Part], None] = lambda part: None,
    tell: Tell = lambda number, count, row: None,
    clock: Callable[[], float] = time.monotonic,
) -> Validation:
    """Tries what everything needs, measures recipes in about `minutes`, the smallest first, and searches for what fits.

    `only` names some of the parts and recipes. One that fails has its reason, and the others go on.
    """
    began, date = clock(), f"{datetime.now(timezone.utc):%Y-%m-%d}"
    try:
        machine = run_child("machine", {}, Machine, limit=MACHINE_LIMIT)
    except Failed as error:
        raise WorldError(f"torch does not work on this machine: {error}; `surefoot doctor` says more") from error
    tell_machine(machine)
    every = cases or cases_for(machine.kind, machine.count)
    _refuse_unknown(only, [*PARTS, *(case.name for case in every)])
    chosen = [case for case in every if not only or case.name in only]
    preflight = list[Part]()
    for part in tried_parts([name for name in PARTS if name in only or not (only or cases)], machine):
        preflight.append(part)
        tell_part(part)
    end, rows = began + minutes * 60, list[Row]()
    for number, case in enumerate(chosen, start=1):
        left = end - SHARE_OF_SEARCHES * minutes * 60 - clock()
        rows.append(_row(case, machine, seconds=max(0.0, left) / (len(chosen) - number + 1), clock=clock))
        tell(number, len(chosen), rows[-1])
    asked = MODELS if models is None else models
    fits = tuple(_what_fits(model, machine, seconds=end - clock()) for model in asked)
    return Validation(machine, date, minutes, tuple(rows), fits, tuple(preflight))


def _refuse_unknown(names: Collection[str], known: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise RecipeError(f"nothing to validate is called {unknown[0]!r}; {known_names(unknown[0], known)}")


def tried_parts(names: Sequence[str], machine: Machine, *, limit: float = PARTS_LIMIT) -> Iterator[Part]:
    """Tries the parts of the preflight in one process. After one that fails, a new process tries the rest."""
    left = [name for name in names if name != ALL_REDUCE]
    while left:
        made, reason = _attempted("parts", {"names": left}, Parts, ranks=1, limit=limit)
        parts = made or Parts(now=left[0])
        done = [*parts.done, *([Part(parts.now, "failed", reason)] if parts.now else [])]
        yield from done
        left = left[len(done) :]
    if ALL_REDUCE in names:
        yield _all_reduced(machine, limit=limit)


def _all_reduced(machine: Machine, *, limit: float) -> Part:
    """On two ranks: of a CPU, or on two GPUs. A single GPU is one rank, which shows whether its library works."""
    if machine.kind not in ("cpu", "cuda"):
        return Part(ALL_REDUCE, "not run", f"surefoot knows no collectives of {machine.kind}")
    ranks = 2 if machine.kind == "cpu" else min(2, machine.count)
    made, reason = _attempted("part", {"name": ALL_REDUCE}, Part, ranks=ranks, limit=limit)
    return made or Part(ALL_REDUCE, "failed", reason)


def _row(case: Case, machine: Machine, *, seconds: float, clock: Callable[[], float]) -> Row:
    began = clock()
    request = {"case": to_plain(case), "machine": to_plain(machine), "seconds": max(1.0, seconds - START_SECONDS)}
    try:
        return run_child("row", request, Row, ranks=case.ranks, limit=max(LEAST_LIMIT, 4 * seconds))
    except Failed as error:
        return failed(case, str(error), seconds=clock() - began)


def _what_fits(model: str, machine: Machine, *, seconds: float) -> WhatFits:
    if seconds < 2 * START_SECONDS:
        return WhatFits(model, "not searched: the time was up")
    try:
        return run_child("fit", {"model": model, "machine": to_plain(machine)}, WhatFits, limit=seconds)
    except Failed as error:
        return WhatFits(model, f"no answer: {error}")


def run_child(task: str, request: dict[str, Any], kind: type[Made], *, ranks: int = 1, limit: float) -> Made:
    """The record that a child process makes. It is stopped, with all its own children, after `limit` seconds."""
    made, reason = _attempted(task, request, kind, ranks=ranks, limit=limit)
    if made is None:
        raise Failed(reason)
    return made


def _attempted(
    task: str, request: dict[str, Any], kind: type[Made], *, ranks: int, limit: float
) -> tuple[Made | None, str]:
    """The last record that a child process wrote, if it wrote one, and how it ended."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = ["-m", "surefoot.validation.child", task, json.dumps(request), str(result)]
        code, said = _ended([sys.executable, *launcher, *words], Path(folder), limit)
        made = read_record(kind, result) if result.exists() else None
    return made, f"it took longer than {seconds_text(limit)}" if code is None else reason_of_end(code, said)


def _ended(command: list[str], folder: Path, limit: float) -> tuple[int | None, str]:
    """The exit code of a process, None if it was stopped, and what it wrote to stderr."""
    with (folder / "stderr").open("w+b") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                _kill(process)
                process.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its children. Windows has no groups of processes: there the children end with their pipes."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
