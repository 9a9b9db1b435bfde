"""marked_lines: whether a finding points at the line that made the bug.

    python bench/marked_lines.py [--quick] [--seed N] [--programs N] [--out FILE]

The programs are buggy scripts of the corpus (`corpus/programs.py`) that need no package beside torch, drawn anew each
time, at most two with one bug of the catalogue. `surefoot watch SCRIPT --json` looks at each. Counted are the programs
whose bug is named. The first line that its finding marks is

- `planted`: a line that the edit wrote, or a line of the statement it stands in; where the edit only removed lines, one
  of the two lines around the gap;
- `partner`: it is not, but the second marked line is;
- `in the loop`: another line of the loop or the function that holds a planted line;
- `elsewhere`: any other line;
- `no line`: the finding names no line of a file.

The corpus was used to tune the checks. It is not held out.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import random
import re
import secrets
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from bugs.forks import Forks, loaded_by
from corpus.expected import EXPECTED
from corpus.programs import Program, programs
from record import write_record
from silent_bugs import ask, findings_in, row_of

QUICK_PROGRAMS = 12
MOST_OF_ONE_BUG = 2
KINDS = ("planted", "partner", "in the loop", "elsewhere", "no line")
PRINTED = ("name", "where", "marked", "planted")
Row = dict[str, Any]


def drawn(count: int, seed: int) -> list[Program]:
    """Buggy scripts that run alone, in a random order; few of each bug."""
    found = [each for each in programs() if each.bug in EXPECTED and not each.recipe and not each.needs]
    random.Random(seed).shuffle(found)
    number: Counter[str | None] = Counter()
    kept = []
    for each in found:
        number[each.bug] += 1
        if number[each.bug] <= MOST_OF_ONE_BUG:
            kept.append(each)
    return kept[:count]


def planted(before: str, after: str) -> set[int]:
    """The lines that an edit wrote, with the statements they stand in; around a gap, the lines beside it."""
    matched = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    lines = set[int]()
    for kind, _, _, first, last in matched.get_opcodes():
        if kind in ("replace", "insert"):
            lines |= set(range(first + 1, last + 1))
        elif kind == "delete":
            lines |= {first, first + 1}
    return lines | {line for each in _simple(after) for line in each if set(each) & lines}


def around(after: str, lines: set[int]) -> set[int]:
    """The lines of the innermost loops and functions that hold one of these lines."""
    kinds = (ast.For, ast.While, ast.FunctionDef, ast.ClassDef)
    spans = [range(node.lineno, node.end_lineno + 1) for node in ast.walk(ast.parse(after)) if isinstance(node, kinds)]
    holding = [min((span for span in spans if line in span), key=len, default=range(0)) for line in lines]
    return {line for span in holding for line in span}


def _simple(source: str) -> list[range]:
    compound = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return [range(node.lineno, node.end_lineno + 1) for node in nodes if not isinstance(node, compound)]


def look(program: Program, base: Program, folder: Path, forks: Forks) -> Row:
    """What the finding that names the bug points at."""
    file, _, _, outputs = ask(program, folder, forks)
    named = [each for output in outputs for each in findings_in(output) if each["check"] in EXPECTED[program.bug or ""]]
    wanted = planted(base.source, program.source)
    rows = [row_of(program) | place_of(each, file, wanted, program.source) for each in named]
    return min(rows, key=lambda row: KINDS.index(row["kind"])) if rows else row_of(program) | {"kind": "not named"}


def place_of(finding: Row, file: Path, wanted: set[int], source: str) -> Row:
    said = finding["where"]
    marked = [each["line"] for each in finding.get("marks", ()) if each["file"] == str(file)]
    numbers = marked or [int(number) for number in re.findall(rf"{re.escape(file.name)}:(\d+)", said)]
    return {
        "check": finding["check"],
        "where": said.replace(str(file), file.name),
        "marked": numbers,
        "planted": sorted(wanted),
        "kind": kind_of(numbers, wanted, source),
    }


def kind_of(numbers: list[int], wanted: set[int], source: str) -> str:
    if not numbers:
        return "no line"
    if numbers[0] in wanted:
        return "planted"
    if wanted & set(numbers):
        return "partner"
    return "in the loop" if around(source, wanted) & set(numbers) else "elsewhere"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PROGRAMS} programs")
    parser.add_argument("--programs", type=int, default=40, metavar="N", help="how many; 40 unless you say")
    parser.add_argument("--seed", type=int, default=None, help="draw the same programs again")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    count = QUICK_PROGRAMS if arguments.quick else arguments.programs
    bases = {each.base: each for each in programs() if each.bug is None and not each.title}
    rows: list[Row] = []
    print(f"seed {seed}", flush=True)
    chosen = drawn(len(programs()), seed)
    forks = Forks(sys.executable, loaded_by([each.source for each in chosen]))
    with tempfile.TemporaryDirectory() as folder:
        try:
            for program in chosen:
                rows.append(row := look(program, bases[program.base], Path(folder), forks))
                print(f"{row['kind']:11}", *(row.get(key, "") for key in PRINTED), flush=True)
                if sum(each["kind"] in KINDS for each in rows) == count:
                    break
        finally:
            forks.close()
    kinds = Counter(row["kind"] for row in rows)
    if arguments.out:
        write_record(arguments.out, {"seed": seed, "rows": rows})
    words = " ".join(f"{kind.replace(' ', '_')}={kinds[kind]}" for kind in (*KINDS, "not named"))
    print(f"RESULT programs={count} seed={seed} {words}")


if __name__ == "__main__":
    main()
