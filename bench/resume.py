"""resume: whether a run that is interrupted and goes on in a fresh process takes the steps it would have taken.

    python bench/resume.py [--quick | --every] [--works a,b] [--precisions a,b] [--optimizers a,b] [--trainers a,b]
                           [--command NAME=COMMAND]... [--out FILE] [--markdown]

A case is a work (`trainers/works.py`), a precision and an optimizer. Every trainer takes its steps twice: in one
process, and in four, the first three of which die in the middle of an epoch at a random step, after a checkpoint. The
case is exact if every later step agrees with the undisturbed run to the last bit: its data, learning rate, losses
and gradient norm; and in the end the weights and what the optimizer remembers. What differed first is written down.

Of all combinations a quarter is taken, in which every pair of work, precision and optimizer occurs; `--every` takes
the rest too, with surefoot alone. How each trainer was set up is said in its file in `trainers/`. Another one is a
command; `trainers/job.py` says what it is asked and answers: `--command mine="python mine.py"`.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from record import write_record
from trainers import peers
from trainers.job import Job, write_job
from trainers.served import Served
from trainers.works import OPTIMIZERS, PRECISIONS, WORKS

STEPS, STOPS, EPOCH = 24, 3, 6
SUREFOOT = "surefoot"
QUICK = (
    ("sentiment", "32-true", "adamw-foreach"),
    ("gpt", "bf16-mixed", "adamw-fused"),
    ("gpt", "bf16-true", "nadam"),
    ("mapped", "16-mixed", "adafactor"),
    ("streamed", "32-true", "adamw"),
    ("streamed", "16-mixed", "sgd"),
)
Answers = list[dict[str, Any]]


# ------------------------------------------------------------------------------------------- trainers


class Command:
    """A trainer that is started anew for each job."""

    def __init__(self, command: str) -> None:
        self.words = shlex.split(command)

    def __call__(self, job: Path) -> None:
        subprocess.run([*self.words, str(job)], check=False)

    def close(self) -> None:
        """Nothing is kept open."""


# ------------------------------------------------------------------------------------------- one case


@dataclass(frozen=True)
class Case:
    work: str
    precision: str
    optimizer: str

    def __str__(self) -> str:
        return f"{self.work}/{self.precision}/{self.optimizer}"

    def is_for_all(self) -> bool:
        """Whether this is one of the quarter that every trainer takes: every pair of two of its parts occurs in it."""
        places = list(WORKS).index(self.work), PRECISIONS.index(self.precision), list(OPTIMIZERS).index(self.optimizer)
        return sum(places) % 4 == 0

    def stops(self) -> list[int]:
        """Random steps in the middle of an epoch, the same in every run of this bench."""
        return sorted(random.Random(str(self)).sample([step for step in range(2, STEPS) if step % EPOCH], STOPS))


class Verdict(NamedTuple):
    """`exact`, or what differed first, or `-` and why the trainer cannot do this work; and the undisturbed end."""

    text: str
    end: dict[str, str]


def judge(case: Case, train: Callable[[Path], None]) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = answers(train, case, Path(folder) / "whole", start=0, stop=None)
        if reason := failure(undisturbed):
            return Verdict(f"- {reason}", {})
        return Verdict(first_difference(train, case, undisturbed, Path(folder)) or "exact", undisturbed[-1])


def first_difference(train: Callable[[Path], None], case: Case, undisturbed: Answers, folder: Path) -> str:
    """In what a run that is interrupted again and again differs from the one that was not; empty if in nothing."""
    steps, end = by_step(undisturbed), undisturbed[-1]
    for start, stop in zip([0, *case.stops()], [*case.stops(), None], strict=True):
        found = answers(train, case, folder / "parts", start=start, stop=stop)
        if reason := failure(found) if stop is None else error_in(found):
            return f"{which(start)}failed: {reason}"
        if difference := difference_in(found, steps, start):
            return which(start) + difference
    return next((f"{part} at the end" for part in ("weights", "optimizer") if end[part] != found[-1][part]), "")


def which(start: int) -> str:
    return f"from {start}: " if start else "not repeatable: "


def answers(train: Callable[[Path], None], case: Case, folder: Path, *, start: int, stop: int | None) -> Answers:
    """What one process of a trainer wrote down."""
    folder.mkdir(exist_ok=True)
    answer, file = folder.parent / f"{folder.name}-{start}.jsonl", folder.parent / f"{folder.name}-{start}.json"
    knobs = {"precision": case.precision, "optimizer": case.optimizer}
    asked = {"work": case.work, "folder": str(folder), "answer": str(answer), "steps": STEPS, "knobs": knobs}
    write_job(file, Job(**asked, start=start, stop=stop))
    train(file)
    return [json.loads(line) for line in answer.read_text().splitlines()] if answer.exists() else []


def error_in(found: Answers) -> str:
    return next((each["error"] for each in found if "error" in each), "" if found else "no answer")


def failure(found: Answers) -> str:
    """Why a process did not come to its end; empty if it did."""
    return error_in(found) or ("" if "weights" in found[-1] else "it ended before its last step")


def by_step(found: Answers) -> dict[int, dict[str, Any]]:
    return {each["step"]: each for each in found if "step" in each}


def difference_in(found: Answers, wanted: dict[int, dict[str, Any]], start: int) -> str:
    steps = by_step(found)
    if start and min(steps, default=0) == 1:
        return "began again"
    for step, row in steps.items():
        for part in ("data", "lr", "losses", "norm"):
            if wanted.get(step, {}).get(part) != row.get(part):
                return f"{part} of step {step}"
    missing = set(range(start + 1, STEPS + 1)) - set(steps) if "weights" in found[-1] else set()
    return f"no step {min(missing)}" if missing else ""


# ------------------------------------------------------------------------------------------- all cases


def measure(trainers: dict[str, Any], cases: list[Case], jobs: int) -> Iterator[dict[str, Any]]:
    """The verdicts of each case, as they are found; so many trainers work at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        for case in cases:
            asked = {name: train for name, train in trainers.items() if name == SUREFOOT or case.is_for_all()}
            judged = dict(zip(asked, pool.map(partial(judge, case), asked.values()), strict=True))
            verdicts, ends = ({name: each[part] for name, each in judged.items()} for part in (0, 1))
            yield {"case": str(case), "stops": case.stops(), "verdicts": verdicts, "ends": ends}


def counts(rows: list[dict[str, Any]], name: str) -> tuple[int, int]:
    """How many cases were exact, of those that the trainer could do."""
    verdicts = [each["verdicts"][name] for each in rows if name in each["verdicts"]]
    return verdicts.count("exact"), sum(not each.startswith("-") for each in verdicts)


def line(row: dict[str, Any], names: list[str]) -> str:
    return f"{row['case']:34} " + " ".join(f"{row['verdicts'].get(name, '')[:32]:32}" for name in names)


def markdown(rows: list[dict[str, Any]], names: list[str]) -> str:
    """One line for each work: how many cases of it were exact, and what else was seen most."""
    lines = ["| work | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for work in WORKS:
        mine = [each for each in rows if each["case"].startswith(f"{work}/")]
        if mine:
            lines.append(f"| {work} | " + " | ".join(markdown_cell(mine, name) for name in names) + " |")
    return "\n".join(lines)


def markdown_cell(rows: list[dict[str, Any]], name: str) -> str:
    exact, of = counts(rows, name)
    seen = Counter(kind(each["verdicts"].get(name, "")) for each in rows)
    others = [f"{what} ({number})" for what, number in seen.most_common() if what not in ("exact", "")]
    return f"{exact} of {of}" + (f"; {', '.join(others)}" if others else "")


def kind(verdict: str) -> str:
    """A verdict without its numbers of steps."""
    return verdict.split(": ", 1)[-1].split(" of step ")[0]


def result(rows: list[dict[str, Any]], names: list[str]) -> str:
    parts = []
    for name in names:
        exact, of = counts(rows, name)
        before = "" if name == SUREFOOT else f"{name}_"
        parts.append(f"{before}exact={exact} {before}of={of}")
    return "RESULT " + " ".join(parts)


# ------------------------------------------------------------------------------------------- the command


def chosen(arguments: argparse.Namespace) -> list[Case]:
    if arguments.quick:
        return [Case(*each) for each in QUICK]
    works = wanted(arguments.works, WORKS)
    precisions, optimizers = wanted(arguments.precisions, PRECISIONS), wanted(arguments.optimizers, OPTIMIZERS)
    cases = [Case(work, precision, optimizer) for optimizer, precision, work in product(optimizers, precisions, works)]
    return cases if arguments.every else [case for case in cases if case.is_for_all()]


def wanted(names: str | None, known: Any) -> list[str]:
    given = names.split(",") if names else list(known)
    if unknown := set(given) - set(known):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a sample of six cases, one of them with the peers")
    size.add_argument("--every", action="store_true", help="every combination")
    parser.add_argument("--works", help="only these, separated by commas")
    parser.add_argument("--precisions", help="only these, separated by commas")
    parser.add_argument("--optimizers", help="only these, separated by commas")
    parser.add_argument("--trainers", help=f"only these of {SUREFOOT}, {', '.join(peers.PEERS)}")
    parser.add_argument("--command", action="append", default=[], metavar="NAME=COMMAND", help="another trainer")
    parser.add_argument("--jobs", type=int, default=2, help="trainers at work at once")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--markdown", action="store_true", help="also print a table with one line for each work")
    arguments = parser.parse_args()
    began = time.perf_counter()
    with ExitStack() as closing:
        names = wanted(arguments.trainers, (SUREFOOT, *peers.PEERS))
        trainers: dict[str, Any] = {name: Served(name) for name in names}
        trainers |= {name: Command(command) for name, command in (each.split("=", 1) for each in arguments.command)}
        for trainer in trainers.values():
            closing.callback(trainer.close)
        print(f"{'case':34} " + " ".join(f"{name:32}" for name in trainers))
        rows = []
        for row in measure(trainers, chosen(arguments), arguments.jobs):
            print(line(row, list(trainers)), flush=True)
            rows.append(row)
    ends = {str(row["ends"].get(SUREFOOT)) for row in rows}
    print(f"{len(rows)} cases; {SUREFOOT}'s runs of them end in {len(ends)} different states")
    print("from N: the process that went on after step N; - the trainer cannot do this work")
    if arguments.markdown:
        print("\n" + markdown(rows, list(trainers)) + "\n")
    if arguments.out:
        seconds = time.perf_counter() - began
        write_record(arguments.out, {"versions": peers.versions(), "seconds": seconds, "rows": rows})
    print(result(rows, list(trainers)))


if __name__ == "__main__":
    main()
