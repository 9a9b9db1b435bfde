"""Runs a validation: one child process for each recipe, each with a time limit. This process uses no device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from surefoot.errors import RecipeError, WorldError
from surefoot.records.codec import read_record, to_plain
from surefoot.records.units import seconds_text
from surefoot.records.validation import Machine, Row, Validation, WhatFits
from surefoot.validation.cases import MODELS, Case, cases_for, failed
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


class Failed(Exception):
    """A child process did not give a result. The message says why."""


def validate(
    *,
    minutes: float = 10,
    only: Collection[str] = (),
    cases: Sequence[Case] | None = None,
    models: Sequence[str] | None = None,
    tell_machine: Callable[[Machine], None] = lambda machine: None,
    tell: Tell = lambda number, count, row: None,
    clock: Callable[[], float] = time.monotonic,
) -> Validation:
    """Measures recipes on this machine in about `minutes`, the smallest first, and searches for what fits.

    `only` names some of the recipes. A recipe that fails is a row with its reason, and the others go on.
    """
    began, date = clock(), f"{datetime.now(UTC):%Y-%m-%d}"
    try:
        machine = run_child("machine", {}, Machine, limit=MACHINE_LIMIT)
    except Failed as error:
        raise WorldError(f"torch does not work on this machine: {error}; `surefoot doctor` says more") from error
    tell_machine(machine)
    chosen = _only(cases or cases_for(machine.kind, machine.count), only)
    end, rows = began + minutes * 60, list[Row]()
    for number, case in enumerate(chosen, start=1):
        left = end - SHARE_OF_SEARCHES * minutes * 60 - clock()
        rows.append(_row(case, machine, seconds=max(0.0, left) / (len(chosen) - number + 1), clock=clock))
        tell(number, len(chosen), rows[-1])
    asked = MODELS if models is None else models
    fits = tuple(_what_fits(model, machine, seconds=end - clock()) for model in asked)
    return Validation(machine, date, minutes, tuple(rows), fits)


def _only(cases: Sequence[Case], names: Collection[str]) -> list[Case]:
    known = [case.name for case in cases]
    if unknown := sorted(set(names) - set(known)):
        raise RecipeError(f"no recipe to validate is called {unknown[0]!r}; known: {', '.join(known)}")
    return [case for case in cases if not names or case.name in names]


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
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = ["-m", "surefoot.validation.child", task, json.dumps(request), str(result)]
        code, said = _ended([sys.executable, *launcher, *words], Path(folder), limit)
        if result.exists():
            return read_record(kind, result)
    raise Failed(f"it took longer than {seconds_text(limit)}" if code is None else reason_of_end(code, said))


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
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace")
