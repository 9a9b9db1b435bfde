"""Tools: what other checkers say of the same programs, in an environment of their own.

| tool       | what it is                                                                                         |
|------------|----------------------------------------------------------------------------------------------------|
| torchfix   | a linter for PyTorch: it reads the source. All its rules are on                                    |
| TrainCheck | infers invariants from the trace of a run that is right, and checks the traces of other runs       |

Both are given more than a person has: what counts is only what they say of a buggy program and not of the same program
without the bug. torchfix detects a bug if it says anything new of the source. TrainCheck learns its invariants from the
very program before the bug was planted, and detects a bug if an invariant fails that holds in a second run of the
program without it. To infer takes minutes and to trace a run half a minute, so it sees a sample of one script's bugs;
a command of either that takes longer than its limit is given up, and the note says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus.programs import Program, programs
from corpus.split import digest
from trainers.peers import see_what_is_installed_here

from bugs.forks import environment

FOLDER = Path(__file__).parent.parent / ".peers" / "checkers"
NEEDED = ("torchfix", "traincheck", "astor", "numba", "pandas", "polars", "pyyaml", "orjson", "watchdog", "tqdm")
TRACED, SAMPLE = "mlp_prices", 10
READ, AT_ONCE = 100, 20
"""torchfix takes a second for each file, so it reads a sample; so many files at once, each lot with its own limit."""
TOO_LONG = 600


def none_of_them() -> dict[str, Any]:
    return {name: {"rate": "n/a", "note": "not run"} for name in ("traincheck", "torchfix")}


def compare(chosen: list[Program]) -> dict[str, Any]:
    """The rate of each tool on the buggy programs among those chosen."""
    install()
    buggy = [program for program in chosen if program.bug]
    return {"traincheck": traincheck(buggy), "torchfix": torchfix(buggy)}


def install() -> None:
    """Makes the environment, if it is not there. torch is the one that this runs with."""
    if (FOLDER / "complete").exists():
        return
    print(f"installing {', '.join(NEEDED[:2])} into {FOLDER}", file=sys.stderr, flush=True)
    venv.create(FOLDER, with_pip=True, clear=True)
    see_what_is_installed_here(FOLDER / "bin" / "python")
    subprocess.run([FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", *NEEDED], check=True)
    (FOLDER / "complete").touch()


def base_of(program: Program) -> Program:
    return next(each for each in programs() if each.base == program.base and each.bug is None and not each.title)


# ------------------------------------------------------------------------------------------- torchfix


def torchfix(buggy: list[Program]) -> dict[str, Any]:
    """It reads a sample, with the programs that they were made of."""
    sample = sorted(buggy, key=lambda program: digest(program.name))[:READ]
    files = {file_name(each): each for known in sample for each in (known, base_of(known))}
    messages: dict[str, list[str]] = {}
    for first in range(0, len(files), AT_ONCE):
        messages |= said_of(dict(list(files.items())[first : first + AT_ONCE]))
    judged = [p for p in sample if {file_name(p), file_name(base_of(p))} <= set(messages)]
    found = [p.name for p in judged if len(messages[file_name(p)]) > len(messages[file_name(base_of(p))])]
    rate = f"{len(found) / len(judged):.3f}" if judged else "n/a"
    return {"rate": rate, "note": f"of {len(judged)} programs, {len(sample) - len(judged)} not in time", "found": found}


def said_of(files: dict[str, Program]) -> dict[str, list[str]]:
    """What torchfix says of each of some files; nothing of any, if it takes too long."""
    messages: dict[str, list[str]] = {name: [] for name in files}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in files.items():
            (Path(folder) / name).write_text(program.source, encoding="utf-8")
        command = [FOLDER / "bin" / "torchfix", "--select", "ALL", folder]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=TOO_LONG).stdout
        except subprocess.TimeoutExpired:
            return {}
    for file, message in re.findall(r"([^/\n]+\.py):\d+:\d+: (.*)", said):
        messages[file].append(message)
    return messages


def file_name(program: Program) -> str:
    return program.name.replace("/", "__") + ".py"


# ------------------------------------------------------------------------------------------- TrainCheck


def traincheck(buggy: list[Program]) -> dict[str, Any]:
    """A sample of the bugs of one script."""
    able = sorted((p for p in buggy if p.base == TRACED), key=lambda program: digest(program.name))[:SAMPLE]
    if not able:
        return {"rate": "n/a", "note": f"none of these programs is a {TRACED}"}
    found, failed = [], {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            invariants, always = learn(base_of(able[0]), Path(folder))
        except subprocess.SubprocessError as error:
            return {"rate": "n/a", "note": f"no invariants: {error}"[:200]}
        for program in able:
            try:
                if violated(program, Path(folder), invariants) - always:
                    found.append(program.name)
            except subprocess.SubprocessError as error:
                failed[program.name] = str(error)[:200]
    seen = len(able) - len(failed)
    rate = f"{len(found) / seen:.3f}" if seen else "n/a"
    return {"rate": rate, "note": f"of {seen} programs made of {TRACED}", "found": found, "failed": failed}


def learn(base: Program, folder: Path) -> tuple[Path, set[str]]:
    """The invariants of a program that is right, and those of them that fail when it is run again."""
    trace = collect(base, folder, "reference")
    invariants = folder / f"{base.base}.json"
    run("traincheck-infer", "-f", str(trace), "-o", str(invariants), folder=folder)
    return invariants, violated(base, folder, invariants)


def collect(program: Program, folder: Path, purpose: str, *more: str) -> Path:
    script, trace = folder / file_name(program).replace("-", "_"), folder / f"{purpose}_{digest(program.name)}"
    script.write_text(program.source, encoding="utf-8")
    run(
        *("traincheck-collect", "--pyscript", str(script), "--models-to-track", "model"),
        *("--output-dir", str(trace), *more),
        folder=folder,
    )
    return trace


def violated(program: Program, folder: Path, invariants: Path) -> set[str]:
    """The invariants that a run breaks."""
    trace = collect(program, folder, "target", "--invariants", str(invariants))
    verdict = folder / f"verdict_{digest(program.name)}"
    run(
        *("traincheck-check", "-f", str(trace), "-i", str(invariants), "-o", str(verdict), "--no-html-report"),
        folder=folder,
    )
    failed = [record for log in verdict.rglob("failed.log") for record in records_in(log.read_text())]
    return {json.dumps(record.get("invariant"), sort_keys=True) for record in failed}


def records_in(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects, one after another."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        record, at = decoder.raw_decode(text, at)
        yield record


def run(command: str, *arguments: str, folder: Path) -> None:
    subprocess.run(
        [FOLDER / "bin" / command, *arguments],
        cwd=folder,
        env=environment(),
        check=True,
        capture_output=True,
        timeout=TOO_LONG,
    )
