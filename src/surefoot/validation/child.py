"""The process of one task: describes the machine, measures a row, or searches for what fits. Writes a record to a file.

`python -m surefoot.validation.child TASK REQUEST RESULT`: the request is JSON, the result is a file.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import UnknownDevice
from surefoot.hardware.datasheet import datasheet_of
from surefoot.hardware.here import here, keep_here
from surefoot.hardware.host import known_memory_bytes
from surefoot.meters import allocator
from surefoot.plain_files import write_whole
from surefoot.planning.fit.search import what_fits
from surefoot.planning.timing.measure import measure_here
from surefoot.recipe.load import load_recipe
from surefoot.records.codec import from_plain, to_json
from surefoot.records.search import Budget, Search
from surefoot.records.validation import Machine, Part, Parts, Row, WhatFits
from surefoot.techniques.deterministic import WORKSPACE, WORKSPACE_SIZE
from surefoot.units import bytes_text, knobs_text, seconds_text
from surefoot.validation.cases import Case, failed
from surefoot.validation.reasons import reason_of
from surefoot.validation.row import SHARE_OF_MEMORY, row_of
from surefoot.world import cuda
from surefoot.world.device import accelerator

SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS")
"""Environment variables that change memory or speed, and name no place."""


def main() -> None:
    task, request, result = sys.argv[1:]
    made = TASKS[task](json.loads(request), Path(result))
    if int(os.environ.get("RANK", "0")) == 0:
        write_whole(Path(result), to_json(made))
    if (isinstance(made, Row) and made.status != "measured") or (isinstance(made, Part) and made.status == "failed"):
        os._exit(1)  # other ranks may wait for this one: torchrun ends them


def machine(*_: Any) -> Machine:
    """Describes this machine. A CPU that nobody has measured is measured now, which takes about half a minute."""
    found = accelerator()
    kind = "cpu" if found is None else found.type
    versions = {"surefoot": version("surefoot"), "torch": torch.__version__, "python": platform.python_version()}
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    settings |= {"threads": str(torch.get_num_threads()), "float32": torch.get_float32_matmul_precision()}
    if hasattr(os, "getloadavg"):
        settings["load"] = f"{os.getloadavg()[0]:.1f}"
    about = {"cuda": _gpu, "cpu": _cpu}.get(kind, _other)(kind)
    return replace(about, versions={**versions, "system": platform.system(), **about.versions}, settings=settings)


def _gpu(kind: str) -> Machine:
    first = cuda.properties()
    sheet = datasheet_of(first.name)
    versions = {"cuda": str(torch.version.cuda or torch.version.hip)}
    named = sheet.name if sheet else ""
    return Machine(first.name, kind, first.count, first.memory_bytes, first.capability, named, versions=versions)


def _cpu(kind: str) -> Machine:
    if allocator.available():
        allocator.install()  # builds the counter, so that no row has to
        allocator.uninstall()
    try:
        sheet = here()
    except UnknownDevice:
        sheet = measure_here(rounds=3)
        keep_here(sheet)
    rates, moved = dict(sheet.reached_flops or {}), sheet.memory_bandwidth
    cores = os.cpu_count() or 1
    return Machine(_model(), kind, cores, known_memory_bytes(), reached_flops=rates, memory_bandwidth=moved)


def _other(kind: str) -> Machine:
    return Machine(platform.machine(), kind, 1, known_memory_bytes())


def _model() -> str:
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.exists() else None
    return named[1].strip() if named else platform.processor() or platform.machine()


def row(request: dict[str, Any], _: Path) -> Row:
    """Measures a recipe. What goes wrong is the result, so that the other recipes go on."""
    case, found = from_plain(Case, request["case"]), from_plain(Machine, request["machine"])
    try:
        return row_of(case, found, seconds=request["seconds"])
    except Exception as error:
        return failed(case, reason_of(error))


def fit(request: dict[str, Any], _: Path) -> WhatFits:
    """Searches for the largest micro-batch of a model on this device."""
    model, found = request["model"], from_plain(Machine, request["machine"])
    name, *words = model.split()
    budget = Budget(int(SHARE_OF_MEMORY * found.memory_bytes)) if not found.datasheet else Budget()
    fixed = {word.partition("=")[0] for word in words}
    try:
        search = what_fits(load_recipe(name, words), on=found.datasheet or None, budget=budget, fixed=fixed)
    except Exception as error:
        return WhatFits(model, f"the search failed: {reason_of(error)}")
    return _answer(model, search)


def _answer(model: str, search: Search) -> WhatFits:
    if not search.answers:
        least = min((trial.memory_bytes for trial in search.trials), default=0)
        return WhatFits(model, f"does not fit: the smallest of {len(search.trials)} settings takes {bytes_text(least)}")
    trial = search.answers[0].trial
    knobs = {"micro_batch_size": trial.micro_batch_size, **trial.knobs}
    took = [bytes_text(trial.memory_bytes)]
    took += [] if trial.step_seconds is None else [f"{seconds_text(trial.step_seconds)} a step"]
    setting = knobs_text(knobs)
    return WhatFits(model, f"{search.answers[0].question}: {setting}; {', '.join(took)}", trial.command)


def parts(request: dict[str, Any], result: Path) -> Parts:
    """Tries parts of the preflight until one fails: what a GPU does after an error proves nothing."""
    from surefoot.validation.preflight import tried

    os.environ.setdefault(WORKSPACE, WORKSPACE_SIZE)  # before CUDA starts: a part trains with deterministic=true
    done: list[Part] = []
    for name in request["names"]:
        write_whole(result, to_json(Parts(tuple(done), name)))
        done.append(tried(name))
        if done[-1].status == "failed":
            break
    return Parts(tuple(done))


def part(request: dict[str, Any], _: Path) -> Part:
    """Tries one part, which may have several ranks."""
    from surefoot.validation.preflight import tried

    return tried(request["name"])


TASKS: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "machine": machine,
    "row": row,
    "fit": fit,
    "parts": parts,
    "part": part,
}

if __name__ == "__main__":
    main()
