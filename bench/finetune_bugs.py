"""finetune_bugs: how many planted bugs of fine-tuning the checks name, and on how many stock scripts they are wrong.

    python bench/finetune_bugs.py [--quick] [--side tuning|held_out] [--only TEXT] [--jobs N] [--show] [--out FILE]
    python bench/finetune_bugs.py --verify

The programs (`corpus/finetune`) start from folders of small models with random weights and their tokenizers
(`base_models.py`), which are written anew for each run. Scripts run under `surefoot watch`: TRL's SFT and DPO, peft
with Trainer, with Accelerate and in plain loops, adapters written by hand, full fine-tuning, sequence to sequence,
classification and vision. Recipes run under `surefoot check`.

A bug is named if an error or a warning names it; loss on the prompt also as information. A program without a bug must
give no error. Bases in `held_out` were written before the checks and run on them once. `--quick` takes 8 programs,
drawn anew. `--verify` runs every program without surefoot: none may raise.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from bugs.forks import Forks, in_lanes
from corpus.finetune.base_models import build
from corpus.finetune.expected import is_named
from corpus.programs import Program as Source
from corpus.programs import apply, read_edits
from record import write_record
from silent_bugs import alarms, door, findings_in

CORPUS = Path(__file__).parent.parent / "corpus" / "finetune"
QUICK = 8
Row = dict[str, Any]


@dataclass(frozen=True)
class Program(Source):
    """A program, and the folder of its side."""

    side: str = "tuning"


def programs() -> list[Program]:
    """All programs, in a fixed order."""
    found = []
    for file in sorted(CORPUS.glob("*/*.py")):
        source, side = file.read_text(encoding="utf-8"), file.parent.name
        found.append(Program(file.stem, None, "", source, side))
        edits = file.with_suffix(".edits")
        found += [Program(file.stem, each.bug, each.title, apply(each, source, {}), side) for each in read_edits(edits)]
    return found


def written(program: Program, folder: Path, models: Path) -> Path:
    """The program's file, with the folders of models beside it."""
    file = folder / program.name.replace("/", "__") / f"{program.base}.py"
    file.parent.mkdir(parents=True)
    file.write_text(program.source, encoding="utf-8")
    (file.parent / "base").symlink_to(models)
    return file


def looked_at(models: Path, program: Program, folder: Path, forks: Forks) -> Row:
    """What surefoot says about a program, and the verdict."""
    file = written(program, folder, models)
    answer = forks.run(do="surefoot", file=str(file), arguments=door(program, file), timeout=240)
    findings = findings_in((file.parent / "stdout").read_text(errors="replace"))
    crashed = answer["code"] not in (0, 1) or not (file.parent / "stdout").stat().st_size
    row = {"name": program.name, "side": program.side, "bug": program.bug, "base": program.base}
    row |= {"findings": findings, "seconds": answer["seconds"], "crashed": crashed}
    row["why"] = (file.parent / "stderr").read_text(errors="replace")[-600:] if crashed else ""
    row["verdict"] = verdict(row)
    said = ", ".join(sorted({f"{each['check']} ({each['severity']})" for each in findings})) or "nothing"
    print(f"{row['verdict']:7} {program.side} {program.name} [{row['seconds']:.0f} s]: {said}", flush=True)
    return row


def verdict(row: Row) -> str:
    """`named` or `missed` for a bug; `clean`, `warned` or `wrong` for a program without one; `crashed`."""
    if row["crashed"]:
        return "crashed"
    if row["bug"]:
        return "named" if is_named(row["bug"], row["findings"]) else "missed"
    return "wrong" if alarms(row, "error") else "warned" if alarms(row, "warning") else "clean"


def run_alone(models: Path, program: Program, folder: Path, forks: Forks) -> Row:
    """Whether a program runs without surefoot."""
    file = written(program, folder, models)
    answer = forks.run(do="plain", file=str(file), recipe=program.recipe, timeout=240)
    why = (file.parent / "stderr").read_text(errors="replace").strip()[-800:] if answer["code"] else ""
    print(f"{'raises' if answer['code'] else 'runs'} {program.name} {why}", flush=True)
    return {"name": program.name, "code": answer["code"]}


def result(rows: list[Row]) -> str:
    def share(of: list[Row]) -> float:
        return sum(row["verdict"] == "named" for row in of) / len(of) if of else float("nan")

    bugs, clean = [row for row in rows if row["bug"]], [row for row in rows if not row["bug"]]
    held = [row for row in bugs if row["side"] == "held_out"]
    wrong = sum(row["verdict"] in ("wrong", "crashed") for row in clean)
    warned = sum(bool(alarms(row, "warning")) for row in clean)
    return (
        f"RESULT bugs={len(bugs)} named={share(bugs):.3f} named_heldout={share(held):.3f} false_errors={wrong} "
        f"stock={len(clean)} false_warnings={warned} bases={len({row['base'] for row in rows})}"
    )


def show(rows: list[Row]) -> None:
    for row in rows:
        print(f"\n== {row['name']}: {row['verdict']} {row['why']}")
        for each in row["findings"]:
            print("\n".join(f"   {name:8} {each[name]}" for name in ("check", "seen", "where", "why", "remedy")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} programs, drawn anew")
    parser.add_argument("--side", default="", choices=("", "tuning", "held_out"))
    parser.add_argument("--only", default="", metavar="TEXT", help="only programs whose name holds this")
    parser.add_argument("--verify", action="store_true", help="run the programs without surefoot instead")
    parser.add_argument("--show", action="store_true", help="print every finding")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    chosen = [each for each in programs() if asked.only in each.name and asked.side in each.side]
    if asked.quick:
        chosen = random.sample(chosen, min(QUICK, len(chosen)))
    with tempfile.TemporaryDirectory() as models:
        build(Path(models))
        if asked.verify:
            alone = in_lanes(partial(run_alone, Path(models)), chosen, asked.jobs)
            raise SystemExit(any(row["code"] for row in alone))
        rows = in_lanes(partial(looked_at, Path(models)), chosen, asked.jobs)
    if asked.show:
        show(rows)
    if asked.out is not None:
        write_record(asked.out, {"programs": rows})
    print(result(rows))


if __name__ == "__main__":
    main()
