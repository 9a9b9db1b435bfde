"""loud_bugs: what surefoot says below the traceback of programs that raise.

    python bench/loud_bugs.py [--quick] [--side held_out] [--only TEXT] [--jobs N] [--out FILE]

The programs (`corpus/loud`) are bases with edits; each edit makes the base raise. A heading names the kind of error
and, as regular expressions, what an explanation must say: `## shapes second layer too narrow | names: head ; 24 ; 32`.
The lines that cause the error end with `#!` in the edit, and not in the program.

A script runs under `surefoot watch`, a recipe under `surefoot train`. A program counts as named if the explanation says
all of that and names one of these lines. If it gives a cause and does not, it counts as misleading. An explanation
that only lists what met gives no cause. Each script also runs without surefoot: the error and the exit code must be the
same (`changed`). `--quick` takes 12 programs, drawn anew.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from bugs.forks import Forks, in_lanes
from corpus.programs import apply, read_edits
from record import write_record

CORPUS = Path(__file__).parent.parent / "corpus" / "loud"
MARK = "  #!"
_BLOCK = re.compile(r"^Explained.*?(?=^(?:Your code raised|It was raised))", re.MULTILINE | re.DOTALL)
_STOPPED = re.compile(r"^NonFinite: .*", re.MULTILINE | re.DOTALL)
_LINES = re.compile(r"(?:\.py:|\blines? )(\d+)")
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
    def is_recipe(self) -> bool:
        return "-> Recipe:" in self.source


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
    told = {}
    for way in ("plain", "surefoot"):
        file = folder / way / program.name.replace("/", "__") / f"{program.base}.py"
        file.parent.mkdir(parents=True)
        file.write_text(program.source, encoding="utf-8")
        words = ["watch", str(file)]
        if program.is_recipe:
            words = ["train", f"{file}:{program.base}", "--no-plan", "--run", "run"]
        if way == "surefoot" or not program.is_recipe:
            answer = forks.run(do=way, file=str(file), arguments=words)
            told[way] = answer["code"], (file.parent / "stderr").read_text(errors="replace")
    code, said = told["surefoot"]
    row = {"name": program.name, "side": program.side, "code": code, **judged(program, said)}
    row["changed"] = "plain" in told and (code, error_in(said)) != (told["plain"][0], error_in(told["plain"][1]))
    print(f"{program.side} {program.name}: {row['verdict']}{'  CHANGED' if row['changed'] else ''}", flush=True)
    return row


def judged(program: Program, told: str) -> Row:
    """`named`, `misleading`, `facts only` or `missed`, and the explanation."""
    block = _BLOCK.search(told)
    stopped = _STOPPED.search(told)  # a training that stopped at a NaN says so in its error
    said = block[0].strip() if block is not None else stopped[0].strip() if stopped is not None else ""
    if not said:
        return {"verdict": "missed", "said": told.strip()[-400:]}
    lines = {int(each) for each in _LINES.findall(said)}
    missing = [each for each in program.said if not re.search(each, said, re.IGNORECASE)]
    named = not missing and not lines.isdisjoint(program.lines)
    gives_cause = "\nFix: " in said or stopped is not None
    verdict = "named" if named else "misleading" if gives_cause else "facts only"
    return {"verdict": verdict, "missing": missing, "lines": sorted(lines), "wanted": program.lines, "said": said}


def error_in(told: str) -> str:
    """The type of the last error that was printed."""
    return (_ERROR.findall(told) or [""])[-1].rpartition(".")[2]


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
        chosen = random.sample(chosen, min(12, len(chosen)))
    rows = in_lanes(looked_at, chosen, asked.jobs)
    if asked.show:
        for row in rows:
            print(
                f"\n== {row['name']}: {row['verdict']} {row.get('missing', '')} {row.get('wanted', '')}\n{row['said']}"
            )
    if asked.out is not None:
        write_record(asked.out, {"programs": rows})
    print(result(rows))


if __name__ == "__main__":
    main()
