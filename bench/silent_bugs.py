"""silent_bugs: how many silent bugs `surefoot check` and `surefoot watch` find, and at whom they cry wolf.

    python bench/silent_bugs.py [--quick] [--side tuning|held_out] [--only TEXT] [--jobs N] [--no-peers] [--out FILE]
    python bench/silent_bugs.py --verify [--only TEXT]

The programs (`corpus/programs.py`) are small training scripts and recipes, most of them with one bug of a catalogue of
133 planted by an edit of their source. Each is looked at in a process of its own through the public door: recipes by
`surefoot check FILE:FUNCTION --json`, scripts by `surefoot watch SCRIPT --json`, two ranks by torchrun.

A bug is detected if a finding names it (`corpus/expected.py`) as an error or a warning; as information, where the
catalogue itself calls it that. A false alarm is any error or warning on a program without a bug. Which programs are
held out was settled by name before they were written (`corpus/split.py`); checks are not tuned on them.

Processes are forks of one that has torch loaded; what a verdict takes from a cold start is measured on a sample.
`--verify` runs every program without surefoot: none may raise, and every planted line must be reached.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from bugs import tools
from bugs.forks import Forks, environment, loaded_by
from bugs.verify import verify
from corpus.expected import detected
from corpus.programs import Program, programs
from corpus.split import digest
from record import write_record
from trainers import peers

QUICK_PROGRAMS = 30
COLD_PROGRAMS = 6
Row = dict[str, Any]


# ------------------------------------------------------------------------------------------- looking at programs


def look(program: Program, folder: Path, forks: Forks) -> Row:
    """What surefoot says of one program."""
    file, code, seconds, outputs = ask(program, folder, forks)
    findings = [finding for output in outputs for finding in findings_in(output)]
    named = [{"check": each["check"], "severity": each["severity"]} for each in findings]
    crashed = code not in (0, 1) or not any(outputs)
    why = (file.parent / "stderr").read_text()[-400:] if crashed and (file.parent / "stderr").exists() else ""
    return row_of(program) | {"findings": named, "seconds": seconds, "crashed": crashed, "why": why}


def ask(program: Program, folder: Path, forks: Forks) -> tuple[Path, int | None, float, list[str]]:
    """Runs surefoot on a program: its file, the exit code, the seconds, and what each rank printed."""
    file = write(program, folder)
    if program.needs == "torchrun":
        return file, *by_torchrun(file)
    answer = forks.run(do="surefoot", file=str(file), arguments=door(program, file))
    return file, answer["code"], answer["seconds"], [(file.parent / "stdout").read_text()]


def outputs_of(program: Program, folder: Path, forks: Forks) -> list[str]:
    """What each rank of a program printed."""
    return ask(program, folder, forks)[-1]


def row_of(program: Program) -> Row:
    door_name = "check" if program.recipe else "watch"
    return {"name": program.name, "bug": program.bug, "held_out": program.held_out, "door": door_name}


def write(program: Program, folder: Path) -> Path:
    file = folder / program.name.replace("/", "__") / f"{program.base}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(program.source, encoding="utf-8")
    return file


def door(program: Program, file: Path) -> list[str]:
    if program.recipe:
        return ["check", f"{file}:{program.recipe}", "--json"]
    return ["watch", str(file), "--json"]


def by_torchrun(file: Path) -> tuple[int, float, list[str]]:
    """Two ranks, each watched; what each of them prints."""
    logs = file.parent / "logs"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--log-dir", str(logs), "--redirects", "3", "-m", "surefoot", "watch", str(file), "--json"]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=file.parent, env=environment(), capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        return 2, time.monotonic() - began, []
    (file.parent / "stderr").write_text(done.stderr, encoding="utf-8")
    outputs = [log.read_text() for log in sorted(logs.rglob("stdout.log"))]
    return done.returncode, time.monotonic() - began, outputs


def findings_in(output: str) -> list[dict[str, str]]:
    """Of the record that a command printed: findings, or a watched script's with findings in it."""
    if "{" not in output:
        return []
    try:
        record = json.loads(output[output.index("{") :])
    except json.JSONDecodeError:
        return []  # a rank that was ended while it wrote
    while isinstance(record.get("findings"), dict):
        record = record["findings"]
    return record.get("findings", [])


def look_at(chosen: list[Program], jobs: int, python: str) -> Iterator[Row]:
    """All of them, in `jobs` lanes; each lane has its own process to fork."""
    with tempfile.TemporaryDirectory() as folder:
        lanes = [chosen[lane::jobs] for lane in range(jobs)]
        with ThreadPoolExecutor(jobs) as threads:
            for rows in threads.map(lambda lane: one_lane(lane, Path(folder), python), lanes):
                yield from rows


def one_lane(chosen: list[Program], folder: Path, python: str) -> list[Row]:
    forks = Forks(python, loaded_by([program.source for program in chosen]))
    try:
        return [say(look(program, folder, forks)) for program in chosen]
    finally:
        forks.close()


def say(row: Row) -> Row:
    """A line for each program: what it is, and what was said of it."""
    if row["crashed"]:
        print(f"crash  {row['name']}: {row['why'].strip().splitlines()[-1:]}", flush=True)
    else:
        right = detected(row["bug"], row["findings"]) if row["bug"] else not alarms(row)
        word = ("found" if right else "miss") if row["bug"] else ("clean" if right else "alarm")
        print(f"{word:6} {row['name']}: {told(row)}", flush=True)
    return row


def told(row: Row) -> str:
    return ", ".join(sorted({f"{each['check']} ({each['severity']})" for each in row["findings"]})) or "nothing"


def alarms(row: Row, *severities: str) -> list[str]:
    wanted = severities or ("error", "warning")
    return [each["check"] for each in row["findings"] if each["severity"] in wanted]


def cold_seconds(chosen: list[Program]) -> dict[str, float]:
    """The seconds of the whole command from a cold start, for a sample of recipes and scripts."""
    clean = [program for program in chosen if program.bug is None and not program.title and not program.needs]
    sample = [p for p in clean if p.recipe][: COLD_PROGRAMS // 2] + [p for p in clean if not p.recipe][
        : COLD_PROGRAMS // 2
    ]
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for program in sample:
            file = write(program, Path(folder))
            command = [sys.executable, "-m", "surefoot", *door(program, file)]
            began = time.monotonic()
            subprocess.run(command, cwd=file.parent, env=environment(), capture_output=True, timeout=300)
            seconds[program.name] = time.monotonic() - began
    return seconds


# ------------------------------------------------------------------------------------------- the table


def share(rows: list[Row]) -> str:
    if not rows:
        return "-"
    found = sum(detected(row["bug"], row["findings"]) for row in rows)
    return f"{found}/{len(rows)} {100 * found / len(rows):.1f}%"


def table(rows: list[Row]) -> str:
    """Detected bugs by the catalogue's groups, on programs for tuning and on those held out."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["bug"]:
            groups[row["bug"].partition("-")[0]].append(row)
    lines = ["| group | bugs | tuning | held out |", "|---|---|---|---|"]
    for group, members in [*sorted(groups.items()), ("all", [row for row in rows if row["bug"]])]:
        sides = [share([row for row in members if row["held_out"] == side]) for side in (False, True)]
        lines.append(f"| {group} | {len({row['bug'] for row in members})} | {sides[0]} | {sides[1]} |")
    for kind in ("error", "warning"):
        sides = [
            false_share([r for r in rows if not r["bug"] and r["held_out"] == side], kind) for side in (False, True)
        ]
        lines.append(f"| false {kind}s | | {sides[0]} | {sides[1]} |")
    return "\n".join(lines)


def times(rows: list[Row], cold: dict[str, float]) -> Iterator[str]:
    """How long a verdict took."""
    for kind in ("check", "watch"):
        if seconds := [row["seconds"] for row in rows if row["door"] == kind]:
            yield f"median seconds of {kind}, with torch loaded: {statistics.median(seconds):.2f}"
    if cold:
        yield f"median seconds from a cold start: {statistics.median(cold.values()):.1f} of {len(cold)}"


def false_share(clean: list[Row], kind: str) -> str:
    return f"{sum(bool(alarms(row, kind)) for row in clean)}/{len(clean)}"


def result(rows: list[Row], theirs: dict[str, Any]) -> str:
    held = [row for row in rows if row["bug"] and row["held_out"]]
    clean = [row for row in rows if not row["bug"]]
    rate = sum(detected(row["bug"], row["findings"]) for row in held) / len(held) if held else float("nan")
    errors = sum(bool(alarms(row, "error")) or row["crashed"] for row in clean)
    warned = 100 * sum(bool(alarms(row, "warning")) for row in clean) / max(1, len(clean))
    others = " ".join(f"{name}={theirs[name]['rate']}" for name in ("traincheck", "torchfix"))
    return (
        f"RESULT programs={len(rows)} detected_heldout={rate:.3f} false_errors={errors} "
        f"false_warnings_pct={warned:.2f} {others}"
    )


# ------------------------------------------------------------------------------------------- the command


def chosen_by(arguments: argparse.Namespace) -> list[Program]:
    chosen = [program for program in programs() if arguments.only in program.name]
    if arguments.side:
        chosen = [program for program in chosen if program.held_out == (arguments.side == "held_out")]
    if arguments.quick:
        return quick(chosen)
    chosen = [program for program in chosen if digest(program.name) % arguments.one_in == arguments.one_in - 1]
    return sorted(chosen, key=lambda program: digest(program.name))


def quick(chosen: list[Program]) -> list[Program]:
    """A fair sample: of each side, every n-th buggy and every n-th clean one of those that need nothing else."""
    alone = [program for program in chosen if not program.needs]
    sides = [some for side in (False, True) if (some := [p for p in alone if p.held_out == side])]
    count = QUICK_PROGRAMS // (3 * len(sides)) if sides else 0
    buggy = [p for some in sides for p in every([p for p in some if p.bug], 2 * count)]
    return buggy + [p for some in sides for p in every([p for p in some if not p.bug], count)]


def every(items: list[Program], count: int) -> list[Program]:
    return items[:: max(1, len(items) // count)][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, without other tools")
    parser.add_argument("--side", choices=("tuning", "held_out"), help="only programs of one side")
    parser.add_argument("--only", default="", metavar="TEXT", help="only programs whose name holds this")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="only one program in N, by name")
    parser.add_argument("--verify", action="store_true", help="run the programs without surefoot instead")
    parser.add_argument("--no-peers", action="store_true", help="without other tools")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    chosen = chosen_by(arguments)
    python = peers.python() if any(program.needs for program in chosen) else sys.executable
    if arguments.verify:
        raise SystemExit(verify(chosen, arguments.jobs, python))
    rows = list(look_at(chosen, arguments.jobs, python))
    cold = {} if arguments.quick else cold_seconds(chosen)
    theirs = tools.none_of_them() if arguments.quick or arguments.no_peers else tools.compare(chosen)
    print(table(rows))
    for name, found in theirs.items():
        print(f"{name}: {found['rate']} {found['note']}")
    for text in times(rows, cold):
        print(text)
    if arguments.out:
        write_record(arguments.out, {"rows": rows, "cold_seconds": cold, "peers": theirs})
    print(result(rows, theirs))


if __name__ == "__main__":
    main()
