"""watch_cost: how many CPU seconds `surefoot watch` adds to small scripts.

    python bench/watch_cost.py [--quick] [--scripts a b] [--rounds N] [--updates N] [--out FILE] [--markdown]
    python bench/watch_cost.py --within [--scripts a b] [--updates N] [--out FILE] [--markdown]

Every script in `loops/` makes 100 small updates. It runs bare and watched, in turns, in processes of its own, on one
thread. Compared are:

- the whole process, from the start of Python to its end: with the import of torch, and, if watched, of surefoot, the
  probes after the end of the script, and the report. This is the ratio that counts;
- the script alone: from its first line to its last update, without imports of torch and without the report;
- `after_100`: the median of the updates after the hundredth, in runs of several hundred updates.

CPU seconds include those of child processes, such as the workers of a DataLoader. Of several rounds the median counts.
With `--quick`, every fifth script, one round.

With `--within`, every script runs long enough to take 1 to 30 CPU seconds: each has a target of its own, and a short
run says how many updates reach it. The result is how many scripts keep the budget: watching adds at most 2 CPU seconds
and 25% of those of the bare script. `--out` keeps a row for each script as soon as it is measured, and a later run
measures only the scripts that have no row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from record import write_record

from surefoot.watch import CHECKED_STEPS

BENCH = Path(__file__).parent
SCRIPTS = tuple(sorted(each.stem for each in (BENCH / "loops").glob("*.py")))
LONG = ("mlp", "small_gpt", "cnn", "accumulated", "averaged", "forecast")
"""Those of which the updates after the hundredth are measured: the others are of the same kinds."""
ALLOWED, SHARE = 2.0, 0.25
"""CPU seconds that watching may add, and the share of the script's own that it may add to them."""
SHORTEST, LONGEST = 1.0, 30.0
"""With `--within`, the CPU seconds of scripts: those between are spread evenly by their ratio."""
PILOT = 20
"""The updates of the run that says how long an update takes."""
SETTLED = CHECKED_STEPS + 10
LATER = 200


class Cost(NamedTuple):
    """The CPU seconds of one run: of the whole process, of the script up to its last update, and of each update."""

    whole: float
    script: float
    updates: list[float]
    status: int


def main() -> None:
    asked = _asked()
    if asked.within:
        within(asked.scripts or SCRIPTS, updates=asked.updates, out=asked.out, table=asked.markdown)
        return
    updates = asked.updates or 100
    rounds = asked.rounds or (1 if asked.quick else 5)
    scripts = asked.scripts or (SCRIPTS[::5] if asked.quick else SCRIPTS)
    found: dict[str, dict[str, Any]] = {}
    for script in scripts:
        found[script] = in_turns(script, rounds, updates)
        print(_line(script, found[script]), flush=True)
    long = [each for each in LONG if each in scripts or not asked.scripts][: 1 if asked.quick else None]
    later = {script: after(script, rounds) for script in long}
    for script, ratios in later.items():
        print(f"{script:16s} after the hundredth update: {median(ratios):.3f} of bare", flush=True)
    if asked.out is not None:
        write_record(asked.out, {"rounds": rounds, "updates": updates, "scripts": found, "after_100": later})
    if asked.markdown:
        print("\n" + markdown(found, later) + "\n")
    ratios = [each["ratio"] for each in found.values()]
    settled = median(median(each) for each in later.values()) if later else float("nan")
    print(
        f"RESULT scripts={len(found)} median_ratio={median(ratios):.2f} worst_ratio={max(ratios):.2f} "
        f"after_100={settled:.3f}"
    )


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scripts", nargs="+", default=None, choices=SCRIPTS)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--updates", type=int, default=None, help="100 unless told; --within finds its own")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--markdown", action="store_true", help="also print a table for the docs")
    parser.add_argument("--within", action="store_true", help="how many scripts keep the budget")
    return parser.parse_args()


def within(scripts: Sequence[str], *, updates: int | None, out: Path | None, table: bool) -> None:
    """Prints for each script whether watching keeps the budget."""
    rows = json.loads(out.read_text(encoding="utf-8"))["scripts"] if out is not None and out.exists() else {}
    for script in scripts:
        if script not in rows:
            rows[script] = _row(script, updates or _updates_for(script))
        print(f"{script:16s} {_told(rows[script])}", flush=True)
        if out is not None:
            write_record(out, {"allowed": ALLOWED, "share": SHARE, "scripts": rows})
    measured = [rows[script] for script in scripts]
    if table:
        print("\n" + within_table(rows) + "\n")
    ratios = [row["watched"] / row["bare"] for row in measured]
    print(
        f"RESULT scripts={len(measured)} within={sum(_over(row) <= 0 for row in measured)} "
        f"median_ratio={median(ratios):.2f} worst={max(ratios):.2f} most_over={max(map(_over, measured)):.1f}"
    )


def _row(script: str, updates: int) -> dict[str, float]:
    bare, watched = (run(script, kind, updates).whole for kind in ("bare", "watched"))
    return {"updates": updates, "bare": bare, "watched": watched}


def _updates_for(script: str) -> int:
    """The updates with which the script takes as many CPU seconds as it is meant to."""
    pilot = run(script, "bare", PILOT)
    meant = SHORTEST * (LONGEST / SHORTEST) ** (SCRIPTS.index(script) / (len(SCRIPTS) - 1))
    one = sum(pilot.updates[1:]) / (PILOT - 1)
    return max(PILOT, PILOT + round((meant - pilot.whole) / one))


def _over(row: dict[str, float]) -> float:
    """The CPU seconds that watching added beyond those that it may; negative within the budget."""
    return row["watched"] - row["bare"] - (ALLOWED + SHARE * row["bare"])


def _told(row: dict[str, float]) -> str:
    added = row["watched"] - row["bare"]
    return (
        f"{row['updates']:6d} updates: {row['bare']:6.2f} s bare, {row['watched']:6.2f} s watched: "
        f"{added:5.2f} s added, {added - _over(row):5.2f} s allowed{': over' if _over(row) > 0 else ''}"
    )


def within_table(rows: dict[str, dict[str, float]]) -> str:
    """One line for each script, for the docs."""
    lines = ["| script | updates | bare, s | watched, s | added, s | allowed, s |", "|---|" + "---:|" * 5]
    for script, row in rows.items():
        added = row["watched"] - row["bare"]
        shown = f"**{added:.1f}**" if _over(row) > 0 else f"{added:.1f}"
        cells = (row["updates"], f"{row['bare']:.1f}", f"{row['watched']:.1f}", shown, f"{added - _over(row):.1f}")
        lines.append(f"| `{script}` | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def in_turns(script: str, rounds: int, updates: int) -> dict[str, Any]:
    """The medians of a script's CPU seconds, bare and watched, and their ratios."""
    runs: dict[str, list[Cost]] = {"bare": [], "watched": []}
    for number in range(rounds):
        for kind in ("bare", "watched") if number % 2 else ("watched", "bare"):
            runs[kind].append(run(script, kind, updates))
    whole = {kind: median(each.whole for each in some) for kind, some in runs.items()}
    alone = {kind: median(each.script for each in some) for kind, some in runs.items()}
    ratio = median(w.whole / b.whole for w, b in zip(runs["watched"], runs["bare"], strict=True))
    return {
        "ratio": ratio,
        "script_ratio": alone["watched"] / alone["bare"],
        "whole": whole,
        "script": alone,
        "wholes": {kind: [each.whole for each in some] for kind, some in runs.items()},
    }


def after(script: str, rounds: int) -> list[float]:
    """For each round: the median update after the hundredth, watched over bare."""
    ratios = []
    for number in range(rounds):
        order = ("bare", "watched") if number % 2 else ("watched", "bare")
        costs = {kind: median(run(script, kind, SETTLED + LATER).updates[SETTLED:]) for kind in order}
        ratios.append(costs["watched"] / costs["bare"])
    return ratios


def run(script: str, kind: str, updates: int) -> Cost:
    """Runs a script once."""
    with tempfile.TemporaryDirectory() as folder:
        notes, file = Path(folder) / "notes", BENCH / "loops" / f"{script}.py"
        words = [sys.executable, str(BENCH / "timed_script.py"), str(notes), kind, str(file), str(updates)]
        before = _children()
        done = subprocess.run(words, cwd=folder, env=_environment(), capture_output=True, text=True)
        whole = _children() - before
        if done.returncode not in ((0, 1) if kind == "watched" else (0,)) or not notes.exists():
            raise SystemExit(f"{script}, {kind}, failed:\n{done.stderr[-3000:]}")
        moments = json.loads(notes.read_text(encoding="utf-8"))
    return Cost(whole, moments[-1] - moments[0], [b - a for a, b in pairwise(moments)], done.returncode)


def _children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _environment() -> dict[str, str]:
    """Of a script: one thread, and bytecode is kept, as that of an installed package is."""
    source = str(BENCH.parent / "src")
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": source, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **own}


def _line(script: str, each: dict[str, Any]) -> str:
    whole, alone = each["whole"], each["script"]
    return (
        f"{script:16s} {whole['bare']:5.2f} s bare, {whole['watched']:5.2f} s watched: {each['ratio']:.2f};"
        f" the script alone {alone['bare']:5.2f} s, {alone['watched']:5.2f} s: {each['script_ratio']:.2f}"
    )


def markdown(found: dict[str, dict[str, Any]], later: dict[str, list[float]]) -> str:
    """One line for each script."""
    lines = [
        "| script | bare, s | watched, s | ratio | script alone, s | watched, s | after update 100 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for script, each in found.items():
        whole, alone = each["whole"], each["script"]
        settled = f"{median(later[script]):.3f}" if script in later else ""
        lines.append(
            f"| `{script}` | {whole['bare']:.2f} | {whole['watched']:.2f} | {each['ratio']:.2f} | {alone['bare']:.2f} "
            f"| {alone['watched']:.2f} | {settled} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
