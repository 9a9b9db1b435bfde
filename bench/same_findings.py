"""same_findings: the findings of many programs, stored once; later runs are compared with them, program by program.

    python bench/same_findings.py [--quick] [--checkout FOLDER] [--update] [--out FILE]

Two sources of programs: a tenth of the corpus, chosen by a hash of the program's name, and every program of
`tests/checks` (twins, variants, look-alikes), where each test's findings are recorded as the test runs.

A finding is compared by check, severity and place. Where it was found in a test, the file and line are left out of its
place, since tests move. Its text is compared by a hash: a reworded text is counted, and is no difference.

`--update` writes the findings of this checkout to `same_findings.jsonl`. `--checkout` runs the surefoot of another
checkout on the programs of this one. `--quick` takes a sample of 25 programs of the corpus, drawn anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

import silent_bugs
from bugs.forks import Forks, loaded_by
from corpus.programs import Program, programs
from corpus.split import digest
from record import write_record
from trainers import peers

HERE = Path(__file__).parent
STORED = HERE / "same_findings.jsonl"
ONE_IN = 10
QUICK_PROGRAMS = 25
RECORDING = "SAME_FINDINGS_FOLDER"
"""Names the folder into which tests write what they have seen."""
Said = list[list[str]]
"""Of each finding: check, severity, place, and a hash of its text."""


# ------------------------------------------------------------------------------------------- the corpus


def chosen() -> list[Program]:
    """The tenth. Another hash than that of the split between tuning and held out, so that both sides are in it."""
    return [program for program in programs() if digest(f"same findings {program.name}") % ONE_IN == 0]


def of_corpus(wanted: list[Program], jobs: int) -> dict[str, Said]:
    python = peers.python() if any(program.needs for program in wanted) else sys.executable
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:
        lanes = [wanted[lane::jobs] for lane in range(jobs)]
        rows = threads.map(lambda lane: _lane(lane, Path(folder), python), lanes)
        return {name: said for row in rows for name, said in row.items()}


def _lane(wanted: list[Program], folder: Path, python: str) -> dict[str, Said]:
    forks = Forks(python, loaded_by([program.source for program in wanted]))
    try:
        return {f"corpus {each.name}": _said(silent_bugs.outputs_of(each, folder, forks), folder) for each in wanted}
    finally:
        forks.close()


def _said(outputs: Iterable[str], folder: Path) -> Said:
    found = [each for output in outputs for each in silent_bugs.findings_in(output)]
    return sorted(_short(each, str(folder)) for each in found)


def _short(finding: dict[str, str], folder: str = "") -> list[str]:
    place = finding["where"].replace(folder, "") if folder else finding["where"]
    text = " ".join(finding[name] for name in ("seen", "why", "remedy"))
    text = re.sub(r"(/[\w.-]+)+/|0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "", text)  # paths and measured numbers differ
    return [finding["check"], finding["severity"], re.sub(r"(/[\w.-]+)+/", "", place), f"{digest(text) % 16**6:06x}"]


# ------------------------------------------------------------------------------------------- the tests


def of_tests(jobs: int) -> dict[str, Said]:
    """The findings of every test of checks, by its name without its file, which may move."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "-p", "same_findings", "-p", "no:cacheprovider", "--numprocesses", str(jobs)]
        command = [sys.executable, "-m", "pytest", *options, "--dist", "loadfile", "tests/checks"]
        path = os.pathsep.join([str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        done = subprocess.run(
            command,
            cwd=HERE.parent,
            env={**os.environ, "PYTHONPATH": path, RECORDING: folder},
            capture_output=True,
            text=True,
        )
        print(*done.stdout.splitlines()[-1:], flush=True)
        found: dict[str, Said] = {}
        for file in sorted(Path(folder).iterdir()):
            for line in file.read_text(encoding="utf-8").splitlines():
                name, said = json.loads(line)
                found.setdefault(f"test {name}", []).extend(said)
        return found


def pytest_runtest_protocol(item: Any) -> None:
    """A hook of pytest: from here on findings belong to this test."""
    if RECORDING in os.environ:
        _record_findings()
        _Recording.test = item.name


class _Recording:
    test = ""
    on = False


def _record_findings() -> None:
    """Records findings where they are made: the class has one place, whatever the checks are called."""
    if _Recording.on:
        return
    from surefoot.records.codec import to_plain
    from surefoot.records.finding import Findings

    plain = Findings.__init__

    def made(self: Findings, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        said = sorted(_short(to_plain(each)) for each in self.findings)
        with open(Path(os.environ[RECORDING]) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps([_Recording.test, said]) + "\n")

    Findings.__init__ = made  # type: ignore[method-assign]
    _Recording.on = True


# ------------------------------------------------------------------------------------------- the comparison


def read(file: Path) -> dict[str, Said]:
    return dict(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())


def write(file: Path, found: dict[str, Said]) -> None:
    lines = (json.dumps([name, said]) + "\n" for name, said in sorted(found.items()))
    file.write_text("".join(lines), encoding="utf-8")


def _compared(name: str, said: Said) -> list[tuple[str, str, str]]:
    """Check, severity and place of each finding."""
    moves = name.startswith("test ")
    return [(check, how, re.sub(r"\w+\.py:\d+", "", place) if moves else place) for check, how, place, _ in said]


def differences(before: dict[str, Said], now: dict[str, Said]) -> Iterator[str]:
    """One line for each program of which something else is said."""
    for name in sorted(before.keys() & now.keys()):
        old, new = (_compared(name, said[name]) for said in (before, now))
        if sorted(old) != sorted(new):
            gone = [" ".join(each) for each in old if each not in new]
            came = [" ".join(each) for each in new if each not in old]
            yield f"{name}: gone {gone}, new {came}"


def reworded(before: dict[str, Said], now: dict[str, Said]) -> int:
    """The programs with the same findings in other words."""
    both = before.keys() & now.keys()
    return sum(
        sorted(each[0] + each[3] for each in before[name]) != sorted(each[0] + each[3] for each in now[name])
        and sorted(_compared(name, before[name])) == sorted(_compared(name, now[name]))
        for name in both
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample of the corpus")
    parser.add_argument("--checkout", type=Path, help="run the surefoot of this folder")
    parser.add_argument("--update", action="store_true", help="store what is found")
    parser.add_argument("--no-tests", action="store_true", help="the corpus only")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    if arguments.checkout:
        os.environ["PYTHONPATH"] = str(arguments.checkout.resolve() / "src")
        sys.path.insert(0, os.environ["PYTHONPATH"])
    wanted = chosen()
    if arguments.quick:
        wanted = random.sample([each for each in wanted if not each.needs], QUICK_PROGRAMS)
    now = of_corpus(wanted, arguments.jobs)
    if not arguments.quick and not arguments.no_tests:
        now |= of_tests(arguments.jobs)
    if arguments.update:
        write(STORED, now)
    before = read(STORED)
    found = list(differences(before, now))
    missing = [] if arguments.quick or arguments.no_tests else sorted(before.keys() - now.keys())
    for line in (*found, *(f"{name}: not run" for name in missing)):
        print(line)
    counts = {"programs": len(now), "different": len(found), "not_run": len(missing), "reworded": reworded(before, now)}
    if arguments.out:
        write_record(arguments.out, {**counts, "differences": found})
    print("RESULT " + " ".join(f"{name}={count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
