"""Links: a folder or a file of a run is moved away and linked to; nothing may change where the link leads."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

from damaged.asking import ask
from damaged.runs import COMMANDS, UNFINISHED, Runs
from damaged.trying import Verdict, ending

FILES = (
    "run.json",
    "log.jsonl",
    "events.jsonl",
    "findings.json",
    "plan.json",
    "recipe.py",
    "lock",
    "model.safetensors",
)
FOLDERS = ("checkpoints", "export")


class Links:
    """A finished or an unfinished run with one link in it, at any level."""

    name = "links"

    def __init__(self, runs: Runs) -> None:
        self.runs, self.place, self.seconds = runs, runs.place, runs.seconds
        self.away = self.place.root / "away"

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        kind = draw.choice(["finished", "unfinished"])
        name = draw.choice(_levels(self.runs.templates / kind))
        commands = [each for each in COMMANDS if kind == "finished" or each in UNFINISHED]
        commands = commands if every else [draw.choice(["train", "train", *commands])]
        return f"{kind}: a link in place of {name}", [self._read(kind, name, command) for command in commands]

    def _read(self, kind: str, name: str, command: str) -> Verdict:
        self.runs._fresh(kind)
        before = self._link(name)
        answer = ask(self.place, COMMANDS[command], seconds=self.seconds)
        if (ended := ending(answer)) is not None:
            return ended
        if _contents(self.away) != before:
            return Verdict("accepted", f"{command} wrote or removed what a link leads to: {_level(name)}", answer)
        if answer.code != 0:
            return Verdict("refused", "", answer)
        outcome = self.runs._outcome(command)
        said = command in ("export", "weights") and any(part in answer.text for part in Path(name).parts[1:2])
        if outcome and outcome != self.runs._usual_of(kind, command) and not said:
            return Verdict("accepted", f"{command} came to something else with a link: {_level(name)}", answer)
        return Verdict("refused" if said else "same", "", answer)

    def _link(self, name: str) -> dict[str, str]:
        """Moves a part of the run away, and leaves a link to it. Returns what is there."""
        shutil.rmtree(self.away, ignore_errors=True)
        self.away.mkdir()
        path = self.place.work / "run" / name
        shutil.move(path, self.away / path.name)
        path.symlink_to(self.away / path.name)
        return _contents(self.away)


def _levels(run: Path) -> list[str]:
    """Folders, single checkpoints, and files. Folders are as likely as all files together."""
    states = sorted(f"checkpoints/{path.name}" for path in (run / "checkpoints").glob("step-*"))
    inside = sorted(str(path.relative_to(run)) for state in states for path in (run / state).iterdir())
    folders = [name for name in (*FOLDERS, *states) if (run / name).exists()]
    files = [name for name in (*FILES, "checkpoints/lock", *inside) if (run / name).is_file()]
    return folders * (len(files) // len(folders)) + files


def _level(name: str) -> str:
    return "/".join("step-N" if part.startswith("step-") else part for part in Path(name).parts)


def _contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }
