"""precision: how often each rule fires on programs without a bug.

    python bench/precision.py [--programs N] [--only TEXT] [--jobs N] [--out FILE] [--markdown]

The programs are clean ones: all of `corpus/clean`, which are of many shapes and were written to hold what rules may
mistake for a bug, all clean ones of `corpus/meaning`, and then those of `corpus/programs.py` until there are N, taken
base by base, so that every base is there before any of them comes twice. Each is watched (a recipe: checked) in a
fork.

Every error or warning is a false alarm. Of infos, only their number is told: they claim no bug.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from importlib.util import find_spec
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

import meaning
import silent_bugs
from corpus.programs import HERE, Program, programs
from corpus.split import digest
from record import write_record
from trainers import peers

PROGRAMS = 400
MOST_WRONG = 1 / 300
"""A rule that fires wrongly on more than this share has to be fixed."""
Row = dict[str, Any]


def clean_programs() -> list[Program]:
    """All of them: the new shapes, the clean ones of meaning, then those of each base in turns."""
    new = [
        Program(file.stem, None, "new", file.read_text(encoding="utf-8")) for file in sorted(HERE.glob("clean/*.py"))
    ]
    asked = [
        Program(each.name.partition("/")[0], None, "meaning/" + each.name.rpartition("/")[2], each.source)
        for each in meaning.scripts()
        if each.kind == "clean"
    ]
    by_base: dict[str, list[Program]] = defaultdict(list)
    for each in sorted((each for each in programs() if each.bug is None), key=lambda each: digest(each.name)):
        by_base[each.base].append(each)
    turns = chain.from_iterable(zip_longest(*by_base.values()))
    return [*new, *asked, *(each for each in turns if each is not None)]


def wrong(rows: list[Row], *severities: str) -> Counter[str]:
    """By rule: on how many programs it said something of these severities."""
    return Counter(check for row in rows for check in {*silent_bugs.alarms(row, *severities)})


def markdown(rows: list[Row]) -> str:
    """The rules that fired at all, the worst first."""
    lines = ["| rule | errors | warnings |", "|---|---:|---:|"]
    errors, warnings = wrong(rows, "error"), wrong(rows, "warning")
    for check, _ in (errors + warnings).most_common():
        lines.append(f"| `{check}` | {errors[check]} | {warnings[check]} |")
    return "\n".join(lines)


def result(rows: list[Row], seen: list[Row]) -> str:
    """The figures of all programs that ran to their end."""
    by_rule = wrong(seen)
    often = sorted(check for check, count in by_rule.items() if count > MOST_WRONG * len(seen))
    errors, warned = (sum(bool(silent_bugs.alarms(row, kind)) for row in seen) for kind in ("error", "warning"))
    return (
        f"RESULT programs={len(seen)} crashed={len(rows) - len(seen)} rules_that_fired={len(by_rule)} "
        f"false_errors={errors} false_warnings={warned} infos={sum(wrong(seen, 'info').values())} "
        f"above_one_in_300={','.join(often) or 'none'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=PROGRAMS, help="how many")
    parser.add_argument("--only", default="", metavar="TEXT", help="only programs whose name holds this")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--markdown", action="store_true", help="also print a table for the docs")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    asked = parser.parse_args()
    chosen = [each for each in clean_programs() if asked.only in each.name][: asked.programs]
    here = all(find_spec(each.needs) for each in chosen if each.needs not in (None, "torchrun"))
    python = sys.executable if here else peers.python()
    rows = list(silent_bugs.look_at(chosen, asked.jobs, python))
    seen = [row for row in rows if not row["crashed"]]
    if asked.markdown:
        print(markdown(seen))
    if asked.out:
        write_record(asked.out, {"rows": rows, "wrong": dict(wrong(seen))})
    print(result(rows, seen))


if __name__ == "__main__":
    main()
