"""Verify: every program runs without surefoot and raises nothing, and what an edit planted is reached."""

from __future__ import annotations

import difflib
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from corpus.programs import Program, programs

from bugs.forks import Forks, loaded_by

SILENT = frozenset(
    (
        *("AUTO-06", "AUTO-07", "AUTO-11", "CKPT-05", "CKPT-06", "DATA-10", "DATA-11", "EVAL-01", "EVAL-03", "EVAL-04"),
        *("EVAL-05", "EVAL-06", "EVAL-08", "MODEL-03", "MODEL-13", "PERF-06", "PREC-06"),
    )
)
"""Bugs that need not change any weight."""


def verify(chosen: list[Program], jobs: int, python: str) -> int:
    """Prints what is not as it should be; 1 if there is anything."""
    chosen = [program for program in chosen if program.needs != "torchrun"]
    bases = {program.base: program for program in programs() if program.bug is None and not program.title}
    missing = [base for base in {p.base: bases[p.base] for p in chosen}.values() if base not in chosen]
    everything = [*missing, *chosen]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:
        lanes = threads.map(lambda n: _lane(everything[n::jobs], Path(folder), python), range(jobs))
        ran = {name: seen for lane in lanes for name, seen in lane.items()}
    problems = [problem for program in chosen if (problem := _problem(program, bases[program.base], ran))]
    print("\n".join([*problems, f"{len(chosen)} programs run, {len(problems)} not as they should"]))
    return int(bool(problems))


def _lane(chosen: list[Program], folder: Path, python: str) -> dict[str, Any]:
    forks = Forks(python, loaded_by([program.source for program in chosen]))
    try:
        return {program.name: _plain(program, folder, forks) for program in chosen}
    finally:
        forks.close()


def _plain(program: Program, folder: Path, forks: Forks) -> dict[str, Any]:
    file = folder / program.name.replace("/", "__") / f"{program.base}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(program.source, encoding="utf-8")
    answer = forks.run(do="plain", file=str(file), recipe=program.recipe)
    if answer["code"] != 0:
        return {"error": (file.parent / "stderr").read_text().strip().splitlines()[-1:] or answer}
    return json.loads((file.parent / "ran.json").read_text())


def _problem(program: Program, base: Program, ran: dict[str, Any]) -> str | None:
    seen, clean = ran[program.name], ran[base.name]
    if "error" in seen:
        return f"{program.name}: {seen['error']}"
    new = planted(base.source, program.source)
    if new and not new & set(seen["lines"]):
        return f"{program.name}: lines {sorted(new)} never ran"
    if program.bug and program.bug not in SILENT and seen["weights"] == clean.get("weights"):
        return f"{program.name}: every weight is as without the bug"
    return None


def planted(before: str, after: str) -> set[int]:
    """The numbers of the lines that an edit wrote."""
    matched = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    places = [place for place in matched.get_opcodes() if place[0] in ("replace", "insert")]
    return {line for _, _, _, first, last in places for line in range(first + 1, last + 1)}
