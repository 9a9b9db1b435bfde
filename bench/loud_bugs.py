"""loud_bugs: what surefoot says about programs that raise, run out of memory or hang.

    python bench/loud_bugs.py [--quick] [--side held_out] [--only TEXT] [--jobs N] [--out FILE]

The programs (`corpus/loud`) are bases with edits; each edit makes the base raise or hang. A heading names the kind of
error and, as regular expressions, what an explanation must say: `## shapes second layer too narrow | names: head ; 24`.
The lines that cause the error end with `#!` in the edit, and not in the program.

A script runs under `surefoot watch`, a recipe under `surefoot train`; a program of kind `memory` with the limit that a
comment of its base states. A program of kind `hang` runs on two ranks by torchrun. When it stands still,
`surefoot stuck` is asked from outside.

A program counts as named if the explanation says all of that and names one of these lines. If it gives a cause and does
not, it counts as misleading. An explanation that only lists what met gives no cause. Each script that raises also runs
without surefoot: the error and the exit code must be the same (`changed`). `--quick` takes 12 programs, drawn anew, one
of which runs out of memory and one of which hangs.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from bugs.forks import Forks, in_lanes
from bugs.hangs import hanging
from corpus.programs import apply, read_edits
from record import write_record

CORPUS = Path(__file__).parent.parent / "corpus" / "loud"
MARK = "  #!"
_BLOCK = re.compile(r"^Explained.*?(?=^(?:Your code raised|It was raised))", re.MULTILINE | re.DOTALL)
_STOPPED = re.compile(r"^error: the (?:loss|gradients) of step .*", re.MULTILINE | re.DOTALL)
_STOOD = re.compile(r"\A.*^\W*process\W+who\W.*", re.MULTILINE | re.DOTALL)
_LINES = re.compile(r"(?:\.py:|\blines? )(\d+)")
_LIMIT = re.compile(r"^# memory limit: (\S+)$", re.MULTILINE)
_DENIED = "Not stuck"
"""How `stuck` begins if it takes a program for one that goes on. All of those here hang."""
_UNKNOWN = "none of them waits in a place that is known"
_ERROR = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception))\b", re.MULTILINE)
Row = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A program that raises, what its explanation must say, and the lines at fault."""

    name: str
    side: str
    base: str
    source: str
    said: tuple[str, ...]
    lines: tuple[int, ...]

    @property
    def kind(self) -> str:
        return self.name.split("/")[1]

    @property
    def is_recipe(self) -> bool:
        return "-> Recipe:" in self.source

    @property
    def arguments(self) -> list[str]:
        """Of the command that runs it."""
        limit = ["--memory-limit", _LIMIT.findall(self.source)[0]] if self.kind == "memory" else []
        if not self.is_recipe:
            return ["watch", *limit, f"{self.base}.py"]
        plan = [] if limit else ["--no-plan"]  # settings that fit are found by planning
        return ["train", f"{self.base}.py:{self.base}", *plan, *limit, "--run", "run"]


def programs() -> list[Program]:
    """All programs, in a fixed order."""
    found = []
    for file in sorted(CORPUS.glob("*/*.py")):
        for edit in read_edits(file.with_suffix(".edits")):
            title, _, said = edit.title.partition(" | names: ")
            marked = apply(edit, file.read_text(encoding="utf-8"), {}).splitlines()
            lines = tuple(number for number, line in enumerate(marked, 1) if line.endswith(MARK))
            name = f"{file.stem}/{edit.bug}/{title.strip().replace(' ', '-')}"
            source = "\n".join(line.removesuffix(MARK) for line in marked) + "\n"
            found.append(Program(name, file.parent.name, file.stem, source, tuple(said.split(" ; ")), lines))
    return found


def looked_at(program: Program, folder: Path, forks: Forks) -> Row:
    """What surefoot says about a program, and the verdict."""
    row = {"name": program.name, "kind": program.kind, "side": program.side}
    row |= (_hung if program.kind == "hang" else _raised)(program, folder, forks)
    print(f"{program.side} {program.name}: {row['verdict']}{'  CHANGED' if row['changed'] else ''}", flush=True)
    return row


def _raised(program: Program, folder: Path, forks: Forks) -> Row:
    """Runs a program under surefoot; also without it, unless it is a recipe or the limit is what makes it raise."""
    told = {}
    for way in ("surefoot",) if program.is_recipe or program.kind == "memory" else ("plain", "surefoot"):
        file = _written(program, folder / way)
        code = forks.run(do=way, file=str(file), arguments=program.arguments)["code"]
        told[way] = code, (file.parent / "stderr").read_text(errors="replace")
    code, said = told["surefoot"]
    changed = "plain" in told and (code, error_in(said)) != (told["plain"][0], error_in(told["plain"][1]))
    return {"code": code, "changed": changed, **judged(program, said)}


def _hung(program: Program, folder: Path, forks: Forks) -> Row:
    """Lets a program hang, and asks from outside why."""
    file = _written(program, folder)
    with hanging(file) as pid:
        code = forks.run(do="surefoot", file=str(file), arguments=["stuck", str(pid)])["code"]
    told = (file.parent / "stdout").read_text(errors="replace") or (file.parent / "ranks.out").read_text()
    return {"code": code, "changed": False, **judged(program, told)}


def _written(program: Program, folder: Path) -> Path:
    file = folder / program.name.replace("/", "__") / f"{program.base}.py"
    file.parent.mkdir(parents=True)
    file.write_text(program.source, encoding="utf-8")
    return file


def judged(program: Program, told: str) -> Row:
    """`named`, `misleading`, `facts only` or `missed`, and the explanation."""
    said, gives_cause = explanation_in(told)
    if not said:
        return {"verdict": "missed", "said": told.strip()[-400:]}
    lines = {int(each) for each in _LINES.findall(said)}
    missing = [each for each in program.said if not re.search(each, said, re.IGNORECASE)]
    named = not missing and not lines.isdisjoint(program.lines) and not said.startswith(_DENIED)
    verdict = "named" if named else "misleading" if gives_cause else "facts only"
    return {"verdict": verdict, "missing": missing, "lines": sorted(lines), "wanted": program.lines, "said": said}


def explanation_in(told: str) -> tuple[str, bool]:
    """The explanation, and whether it gives a cause: below a traceback, as the error of a NaN, or by `stuck`."""
    block, stopped, stood = _BLOCK.search(told), _STOPPED.search(told), _STOOD.search(told)
    if block is not None:
        return block[0].strip(), "\nFix: " in block[0]
    if stopped is not None:
        return stopped[0].strip(), True
    return (stood[0].strip(), _UNKNOWN not in stood[0]) if stood is not None else ("", False)


def error_in(told: str) -> str:
    """The type of the last error that was printed."""
    return (_ERROR.findall(told) or [""])[-1].rpartition(".")[2]


def drawn(chosen: list[Program]) -> list[Program]:
    """At most 12: ten that raise, one that runs out of memory, and one that hangs, which takes longest."""
    of: dict[str, list[Program]] = {"memory": [], "hang": [], "": []}
    for each in chosen:
        of[each.kind if each.kind in of else ""].append(each)
    return [each for kind, some in of.items() for each in random.sample(some, min(1 if kind else 10, len(some)))]


def by_kind(rows: list[Row]) -> str:
    """A line for each kind of error: how many programs got which verdict."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row["kind"], Counter())[row["verdict"]] += 1
    return "\n".join(
        f"{kind}: " + ", ".join(f"{n} {verdict}" for verdict, n in of.items()) for kind, of in counts.items()
    )


def result(rows: list[Row]) -> str:
    def share(side: str) -> float:
        of = [row["verdict"] for row in rows if row["side"] == side]
        return of.count("named") / len(of) if of else float("nan")

    misleading = sum(row["verdict"] == "misleading" for row in rows)
    return (
        f"RESULT programs={len(rows)} named_heldout={share('held_out'):.3f} misleading={misleading} "
        f"named_tuning={share('tuning'):.3f} changed={sum(row['changed'] for row in rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--side", default="", choices=("", "tuning", "held_out"))
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true", help="print every explanation")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    chosen = [each for each in programs() if asked.only in each.name and asked.side in each.side]
    if asked.quick:
        chosen = drawn(chosen)
    rows = in_lanes(looked_at, chosen, asked.jobs)
    if asked.show:
        for row in rows:
            print(
                f"\n== {row['name']}: {row['verdict']} {row.get('missing', '')} {row.get('wanted', '')}\n{row['said']}"
            )
    if asked.out is not None:
        write_record(asked.out, {"programs": rows})
    print(by_kind(rows))
    print(result(rows))


if __name__ == "__main__":
    main()
