"""probe: what `surefoot probe` says of scripts with a bug of meaning, and of the same scripts without it.

    python bench/probe.py [--quick] [--only TEXT] [--jobs N] [--updates N] [--out FILE]

The programs (`corpus/probe`) are scripts of different kinds, with edits that plant a bug of meaning or nothing that
matters. A heading names the bug and the findings that would show it: `## bug NAME title | expect: FINDING FINDING`.
The scripts were written after the experiments and their thresholds, by the same author; see docs/measured/probe.md.

A bug is found if a finding that was expected of it is a warning or an error. A finding on a program without a bug is
false, infos too. `cpu_times` is the CPU of a probe over that of the bare script, start and imports included, in the
median. Each program runs in a process of its own; nothing that it writes may be left beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from corpus.programs import apply, read_edits
from record import write_record

ROUND = Path(__file__).parent.parent / "corpus" / "probe"
QUICK = ("rent_table/clean", "word_lm/clean", "word_lm/windows")
Row = dict[str, Any]
_BARE: dict[str, float] = {}
"""CPU seconds of a script of each base, alone: its edits take as long."""


@dataclass(frozen=True)
class Script:
    """One program; `expected` are the findings that would name its bug, empty for a clean one."""

    name: str
    source: str
    expected: tuple[str, ...] = ()
    place: int = 0
    """Its number among the programs of its base: 0 is the base itself."""


def scripts() -> list[Script]:
    """All programs: each base, then its edits."""
    found = []
    for file in sorted(ROUND.glob("*.py")):
        source = file.read_text(encoding="utf-8")
        found.append(Script(f"{file.stem}/clean", source))
        for place, edit in enumerate(read_edits(file.with_suffix(".edits")), 1):
            title, _, expected = edit.title.partition(" | expect:")
            kind = title.split()[0] if edit.bug else f"clean/{title.replace(' ', '-')}"
            found.append(Script(f"{file.stem}/{kind}", apply(edit, source, {}), tuple(expected.split()), place))
    return found


def looked_at(script: Script, jobs: int, updates: int) -> Row:
    """The record of a probe, and its CPU seconds beside those of the script alone."""
    with tempfile.TemporaryDirectory(prefix="probe-bench-") as folder:
        file = Path(folder) / f"{script.name.partition('/')[0]}.py"
        file.write_text(script.source, encoding="utf-8")
        command = [sys.executable, "-m", "surefoot", "probe", str(file), "--json"]
        probed = _timed([*command, "--jobs", str(jobs), "--updates", str(updates)], folder)
        left = sorted(each.name for each in Path(folder).iterdir() if each != file and each.name != "__pycache__")
        base = script.name.partition("/")[0]
        if base not in _BARE:
            _BARE[base] = _timed([sys.executable, str(file)], folder)["cpu_seconds"]
    record = json.loads(probed["stdout"]) if probed["code"] == 0 else {}
    findings = record.get("findings", {}).get("findings", [])
    row = {
        "name": script.name,
        "expected": script.expected,
        "findings": [{key: each[key] for key in ("check", "severity", "seen", "where")} for each in findings],
        "experiments": record.get("experiments", []),
        "cpu_seconds": probed["cpu_seconds"],
        "seconds": probed["seconds"],
        "expected_cpu_seconds": record.get("expected_cpu_seconds"),
        "bare_cpu_seconds": _BARE[base],
        "left": left,
        "error": "" if record else probed["stderr"][-400:],
    }
    said = ", ".join(f"{each['check']} ({each['severity']})" for each in findings) or row["error"] or "nothing"
    print(f"{script.name:45} {_times(row):5.1f}x  {said}{'  LEFT ' + str(left) if left else ''}", flush=True)
    return row


def _timed(command: list[str], folder: str) -> Row:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = time.perf_counter() - began
    return {
        "code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "cpu_seconds": cpu,
        "seconds": seconds,
    }


def _times(row: Row) -> float:
    return row["cpu_seconds"] / max(1e-9, row["bare_cpu_seconds"])


def found(row: Row) -> bool:
    """Does a warning or an error name the bug?"""
    return any(each["check"] in row["expected"] and each["severity"] != "info" for each in row["findings"])


def result(rows: list[Row]) -> str:
    """The figures."""
    bugs, clean = ([row for row in rows if bool(row["expected"]) == planted] for planted in (True, False))
    hinted = [
        row for row in bugs if not found(row) and {each["check"] for each in row["findings"]} & set(row["expected"])
    ]
    other = sum(each["check"] not in row["expected"] for row in bugs for each in row["findings"])
    return (
        f"RESULT found={sum(map(found, bugs))} of={len(bugs)} hinted={len(hinted)} other_findings={other} "
        f"clean={len(clean)} clean_findings={sum(len(row['findings']) for row in clean)} "
        f"failed={sum(bool(row['error']) for row in rows)} left={sum(bool(row['left']) for row in rows)} "
        f"cpu_times={statistics.median(map(_times, rows)):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    every = sorted(scripts(), key=lambda each: each.place)  # the clean ones first, then one bug of each
    chosen = [each for each in every if asked.only in each.name and (not asked.quick or each.name in QUICK)]
    rows: list[Row] = []
    for each in chosen:
        rows.append(looked_at(each, asked.jobs, asked.updates))
        if asked.out is not None:
            write_record(asked.out, {"updates": asked.updates, "programs": rows})
    print(result(rows))


if __name__ == "__main__":
    main()
