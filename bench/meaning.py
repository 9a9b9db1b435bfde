"""meaning: what `surefoot watch` and `surefoot probe` say of scripts whose bugs are of meaning as well as of mechanics.

    python bench/meaning.py [--round meaning|blind] [--probe] [--quick] [--only TEXT] [--jobs N] [--out FILE]

The programs are one script for each family, with edits that plant a bug or nothing that matters. A bug's cause stands
in its heading: `## bug MEAN title | cause: ...` (meaning) or `## bug MECH ...` (mechanics of PyTorch). The round
`meaning` (`corpus/meaning`) was written after the checks, without reading them; the round `blind` (`corpus/blind`)
after `probe` as well. Each program runs bare and watched; everything that it prints must be the same.

Whether a finding names a bug is judged by reading it beside the cause. `judged.json` of the round holds the verdicts:
`named`, `vague`, `wrong cause` or `missed`, for each program. Programs without a verdict are listed and not counted.
A program without an error or warning is missed; that needs no verdict. `--quick` takes 10 programs, drawn anew.

`--probe` runs `surefoot probe` instead: on every script as it is, and on each bug of meaning that `watch` did not
name. Its verdicts stand in `judged_by_probe.json`. `--only` may name several texts, with commas between them.
`--out FILE.json` gets the record at the end. FILE.jsonl gets a line as soon as a program has been looked at; a program
that stands there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parent.parent))  # the corpus stands beside the benches

from bugs.forks import Forks, in_lanes
from corpus.programs import apply, read_edits
from record import write_record

CORPUS = Path(__file__).parent.parent / "corpus"
ROUNDS = ("meaning", "blind")
VERDICTS = ("named", "vague", "wrong cause", "missed")
PROBE_SECONDS = 900
Row = dict[str, Any]


@dataclass(frozen=True)
class Script:
    """One program: `kind` is MEAN, MECH or clean."""

    name: str
    kind: str
    cause: str
    source: str


def scripts(of_round: str = "meaning") -> list[Script]:
    """All programs of a round."""
    found = []
    for file in sorted((CORPUS / of_round).glob("*.py")):
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
    outputs, seconds = {}, {}
    for way in ("untraced", "surefoot"):
        file = written(script, folder / way)
        words = {"arguments": ["watch", str(file), "--json"]} if way == "surefoot" else {}
        answer = forks.run(do=way, file=str(file), **words)
        outputs[way] = [(file.parent / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        code, seconds[way] = answer["code"], answer["cpu_seconds"]
    record, printed = outputs["surefoot"]  # with --json, the script's own lines go to stderr
    row = {
        **described(script, code, findings_in(record)),
        "changed": not in_order(_without_times(outputs["untraced"][0]), _without_times(printed)),
        "bare_cpu_seconds": round(seconds["untraced"], 2),
        "cpu_seconds": round(seconds["surefoot"], 2),
    }
    report(row)
    return row


def probed(script: Script, folder: Path, forks: Forks) -> Row:
    """What `surefoot probe` says of a script."""
    file = written(script, folder / "probe")
    answer = forks.run(do="surefoot", file=str(file), arguments=["probe", str(file), "--json"], timeout=PROBE_SECONDS)
    findings = findings_in((file.parent / "stdout").read_text(errors="replace"))
    row = {**described(script, answer["code"], findings), "cpu_seconds": round(answer["cpu_seconds"], 2)}
    report(row)
    return row


def written(script: Script, folder: Path) -> Path:
    """The file of a script, in a folder of its own."""
    file = folder / script.name.replace("/", "__") / f"{script.name.partition('/')[0]}.py"
    file.parent.mkdir(parents=True)
    file.write_text(script.source, encoding="utf-8")
    return file


def described(script: Script, code: int | None, findings: list[Row]) -> Row:
    kept = [{key: each.get(key) for key in ("check", "severity", "seen", "where", "marks")} for each in findings]
    return {"name": script.name, "kind": script.kind, "cause": script.cause, "code": code, "findings": kept}


def report(row: Row) -> None:
    reported = ", ".join(each["check"] for each in alarms(row)) or "nothing"
    ended = "" if row["code"] in (0, 1) else f"  EXIT {row['code']}"
    print(f"{row['name']}: {reported}{'  CHANGED' if row.get('changed') else ''}{ended}", flush=True)


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


def verdicts_of(rows: list[Row], file: Path) -> dict[str, str]:
    """The verdict on every program with a bug."""
    judged = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    bugs = [row for row in rows if row["kind"] != "clean"]
    return {row["name"]: judged.get(row["name"], "unjudged") if alarms(row) else "missed" for row in bugs}


def result(rows: list[Row], file: Path) -> str:
    """The figures, from findings and the verdicts in a file."""
    verdicts = verdicts_of(rows, file)
    for name in (name for name, verdict in verdicts.items() if verdict == "unjudged"):
        print(f"no verdict: {name}")

    def share(kind: str) -> float:
        of = [verdict for row in rows if row["kind"] in kind and (verdict := verdicts[row["name"]]) != "unjudged"]
        return of.count("named") / len(of) if of else float("nan")

    clean = [row for row in rows if row["kind"] == "clean"]
    false = [each["severity"] for row in clean for each in alarms(row)]
    warned = sum(any(each["severity"] == "warning" for each in alarms(row)) for row in clean)
    counted = list(verdicts.values())
    return (
        f"RESULT bugs={len(verdicts)} named={share('MEAN MECH'):.3f} meaning={share('MEAN'):.3f} "
        f"mechanics={share('MECH'):.3f} vague={counted.count('vague')} wrong_cause={counted.count('wrong cause')} "
        f"unjudged={counted.count('unjudged')} clean={len(clean)} "
        f"false_errors={false.count('error')} false_warnings_pct={100 * warned / max(1, len(clean)):.1f} "
        f"changed={sum(row.get('changed', False) for row in rows)}"
    )


def left_by_watch(chosen: list[Script], folder: Path) -> list[Script]:
    """The scripts as they are, and the bugs of meaning that `watch` did not name."""
    file = folder / "judged.json"
    judged = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    bases = [each for each in chosen if each.name.endswith("/clean")]
    return bases + [each for each in chosen if each.kind == "MEAN" and judged.get(each.name) != "named"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--round", choices=ROUNDS, default="meaning")
    parser.add_argument("--probe", action="store_true", help="run `surefoot probe` on what watch did not name")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    folder = CORPUS / asked.round
    chosen = [each for each in scripts(asked.round) if any(text in each.name for text in asked.only.split(","))]
    if asked.probe:
        chosen = left_by_watch(chosen, folder)
    if asked.quick:
        chosen = random.sample(chosen, min(10, len(chosen)))
    lines = asked.out and asked.out.with_suffix(".jsonl")
    rows = rows_in(lines)
    todo = [each for each in chosen if each.name not in {row["name"] for row in rows}]
    look = kept(probed if asked.probe else looked_at, lines)
    rows += in_lanes(look, todo, min(asked.jobs, len(todo))) if todo else []
    if asked.out:
        write_record(asked.out, {"programs": rows})
    print(result(rows, folder / ("judged_by_probe.json" if asked.probe else "judged.json")))


def rows_in(file: Path | None) -> list[Row]:
    """What an earlier run has written."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []


def kept(look: Callable[[Script, Path, Forks], Row], file: Path | None) -> Callable[[Script, Path, Forks], Row]:
    """A look that writes each row to a file at once."""

    def keep(script: Script, folder: Path, forks: Forks) -> Row:
        row = look(script, folder, forks)
        if file:
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")
        return row

    return keep


if __name__ == "__main__":
    main()
