"""meaning: what `surefoot watch` says of scripts whose bugs are of meaning as well as of mechanics.

    python bench/meaning.py [--quick] [--only TEXT] [--jobs N] [--out FILE]

The programs (`corpus/meaning`) are one script for each family, with edits that plant a bug or nothing that matters.
They were written after the checks, by people who had not read them, and each bug's cause stands in its heading:
`## bug MEAN title | cause: ...` (meaning) or `## bug MECH ...` (mechanics of PyTorch). Each program runs bare and
watched; everything that it prints must be the same.

Whether a finding names a bug is judged by reading it beside the cause. `corpus/meaning/judged.json` holds the verdicts:
`named`, `wrong cause` or `missed`, for each program. Programs without a verdict are listed and not counted. A program
without an error or warning is missed; that needs no verdict. `--quick` takes 10 programs, drawn anew.
"""

from __future__ import annotations

import argparse
import json
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

ROUND = Path(__file__).parent.parent / "corpus" / "meaning"
JUDGED = ROUND / "judged.json"
Row = dict[str, Any]


@dataclass(frozen=True)
class Script:
    """One program: `kind` is MEAN, MECH or clean."""

    name: str
    kind: str
    cause: str
    source: str


def scripts() -> list[Script]:
    """All programs of the round."""
    found = []
    for file in sorted(ROUND.glob("*.py")):
        source = file.read_text(encoding="utf-8")
        found.append(Script(f"{file.stem}/clean", "clean", "", source))
        for edit in read_edits(file.with_suffix(".edits")):
            title, _, cause = edit.title.partition(" | cause:")
            kind, _, rest = title.partition(" ") if edit.bug else ("clean", "", title)
            name = f"{file.stem}/{kind}/{rest.strip().replace(' ', '-')}"
            found.append(Script(name, kind, cause.strip(), apply(edit, source, {})))
    return found


def looked_at(script: Script, folder: Path, forks: Forks) -> Row:
    """What the script prints bare, what it prints watched, and the findings."""
    outputs = {}
    for way in ("plain", "surefoot"):
        file = folder / way / script.name.replace("/", "__") / f"{script.name.partition('/')[0]}.py"
        file.parent.mkdir(parents=True)
        file.write_text(script.source, encoding="utf-8")
        words = {"arguments": ["watch", str(file), "--json"]} if way == "surefoot" else {}
        answer = forks.run(do=way, file=str(file), **words)
        outputs[way] = [(file.parent / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        code = answer["code"]
    record, printed = outputs["surefoot"]  # with --json, the script's own lines go to stderr
    findings = findings_in(record)
    row = {
        "name": script.name,
        "kind": script.kind,
        "cause": script.cause,
        "code": code,
        "changed": not in_order(_without_times(outputs["plain"][0]), _without_times(printed)),
        "findings": [{key: each[key] for key in ("check", "severity", "seen", "where")} for each in findings],
    }
    said = ", ".join(each["check"] for each in alarms(row)) or "nothing"
    print(f"{script.name}: {said}{'  CHANGED' if row['changed'] else ''}", flush=True)
    return row


def findings_in(output: str) -> list[Row]:
    """The findings in a record."""
    if "{" not in output:
        return []
    record = json.loads(output[output.index("{") :])
    while isinstance(record.get("findings"), dict):
        record = record["findings"]
    return record.get("findings", [])


def _without_times(text: str) -> list[str]:
    """The lines without the seconds and speeds that transformers prints, which differ in any two runs."""
    return re.sub(r"'\w+_(runtime|per_second)': '[^']*'", "", text).splitlines()


def in_order(lines: list[str], among: list[str]) -> bool:
    """Whether all lines stand in a text, in this order, perhaps with others between them."""
    rest = iter(among)
    return all(line in rest for line in lines)


def alarms(row: Row) -> list[Row]:
    return [each for each in row["findings"] if each["severity"] in ("error", "warning")]


def result(rows: list[Row]) -> str:
    """The figures, from findings and verdicts."""
    judged = json.loads(JUDGED.read_text(encoding="utf-8")) if JUDGED.exists() else {}
    verdicts = {
        row["name"]: judged.get(row["name"], "unjudged") if alarms(row) else "missed"
        for row in rows
        if row["kind"] != "clean"
    }
    for name in (name for name, verdict in verdicts.items() if verdict == "unjudged"):
        print(f"no verdict: {name}")

    def share(kind: str) -> float:
        of = [verdict for row in rows if row["kind"] in kind and (verdict := verdicts[row["name"]]) != "unjudged"]
        return of.count("named") / len(of) if of else float("nan")

    clean = [row for row in rows if row["kind"] == "clean"]
    false = [each["severity"] for row in clean for each in alarms(row)]
    warned = sum(any(each["severity"] == "warning" for each in alarms(row)) for row in clean)
    return (
        f"RESULT bugs={len(verdicts)} named={share('MEAN MECH'):.3f} meaning={share('MEAN'):.3f} "
        f"mechanics={share('MECH'):.3f} wrong_cause={list(verdicts.values()).count('wrong cause')} "
        f"unjudged={list(verdicts.values()).count('unjudged')} clean={len(clean)} "
        f"false_errors={false.count('error')} false_warnings_pct={100 * warned / max(1, len(clean)):.1f} "
        f"changed={sum(row['changed'] for row in rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    chosen = [each for each in scripts() if asked.only in each.name]
    if asked.quick:
        chosen = random.sample(chosen, min(10, len(chosen)))
    rows = in_lanes(looked_at, chosen, asked.jobs)
    if asked.out is not None:
        write_record(asked.out, {"programs": rows})
    print(result(rows))


if __name__ == "__main__":
    main()
