"""Runs: a finished and an unfinished run directory, damaged, and read by every command that reads one."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from damaged import mutations
from damaged.asking import Answer, Place, ask
from damaged.conforming import RECORDS, conforms
from damaged.mutations import Mutation, Payload, evil_source
from damaged.trying import Verdict, ending

STEPS, LAST = 6, 5
"""Of the finished run, and the last step of the unfinished one; both save every second step and keep two."""
RECIPE = '''"""A small recipe, of which the runs were made."""
import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def squared_error(model, batch):
    x, y = batch
    return ((model(x) - y) ** 2).sum(), len(y)


def points():
    x = torch.linspace(-1, 1, 256).view(64, 4)
    return TensorDataset(x, x.sum(1, keepdim=True))


def small(width: int = 8, lr: float = 0.01) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1)),
        data=points,
        loss=squared_error,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=4,
        max_steps=6,
        save_every=2,
        keep_last=2,
        about="sums of four numbers",
    )
'''
COMMANDS: dict[str, list[str]] = {
    "train": ["train", "../small.py", "--run", "run", "--no-plan"],
    "audit": ["train", "../small.py", "--run", "run", "--audit"],
    "export": ["export", "run", "../small.py"],
    "export bare": ["export", "run"],
    "weights": ["export", "run", "--weights"],
    "report": ["report", "run"],
    "report --json": ["report", "run", "--json"],
    "report --html": ["report", "run", "--html", "page.html"],
    "profile --against": ["profile", "../small.py", "--against", "run", "--steps", "1"],
    "plan --against": ["plan", "../small.py", "--against", "run"],
}
REPORTS = ("report", "report --json", "report --html")
READERS: dict[str, tuple[str, ...]] = {
    "run.json": ("train", "audit", "export", "export bare", "weights", *REPORTS, "profile --against"),
    "log.jsonl": ("train", *REPORTS),
    "events.jsonl": ("train", *REPORTS),
    "findings.json": REPORTS,
    "plan.json": (*REPORTS, "plan --against"),
    "profile.json": (*REPORTS, "profile --against"),
    "recipe.py": ("train", "export", "export bare", "weights", "audit", "report", "profile --against"),
    "model.safetensors": ("train", "export"),
    "export": ("export", "weights"),
    "lock": ("train", "report"),
    "checkpoints": ("train", "audit", "weights"),
}
UNFINISHED = ("train", "audit", "weights", *REPORTS)
"""What can be asked of a run that is not finished."""


class Runs:
    """The parts of a run directory, damaged one at a time."""

    name = "runs"

    def __init__(self, place: Place, seconds: float) -> None:
        self.place, self.seconds = place, seconds
        self.templates = place.root / "templates"
        (place.work.parent / "small.py").write_text(RECIPE)
        self._build()
        self._usual: dict[tuple[str, str], dict[str, Any]] = {}

    # --------------------------------------------------------------------------------------- the undamaged ones

    def _build(self) -> None:
        finished, unfinished = self.templates / "finished", self.templates / "unfinished"
        recipe = str(self.place.work.parent / "small.py")
        words = ["train", recipe, "--run", str(finished)]
        self._must(ask(self.place, words, seconds=300))
        self._must(ask(self.place, ["profile", recipe, "--run", str(finished), "--steps", "2"], seconds=300))
        self._must(ask(self.place, ["export", str(finished), recipe], seconds=300))
        ask(self.place, ["train"], seconds=300, do=partial(_train_and_die, recipe, unfinished))
        for folder in (finished, unfinished):
            _add_records(folder)

    def _must(self, answer: Answer) -> Answer:
        if answer.code != 0:
            raise RuntimeError(f"{' '.join(answer.words)} fails on an undamaged run:\n{answer.text[-3000:]}")
        return answer

    def _commands(self, kind: str) -> tuple[str, ...]:
        return UNFINISHED if kind == "unfinished" else tuple(COMMANDS)

    def _usual_of(self, kind: str, command: str) -> dict[str, Any]:
        """What a command comes to on an undamaged run."""
        if (kind, command) not in self._usual:
            self._fresh(kind)
            self._must(ask(self.place, COMMANDS[command], seconds=300))
            self._usual[kind, command] = self._outcome(command)
        return self._usual[kind, command]

    def _fresh(self, kind: str) -> Path:
        """A copy of an undamaged run, where commands look for one."""
        mutations.empty_folder(self.place.work)
        self.place.work.mkdir()
        shutil.copytree(self.templates / kind, self.place.work / "run", symlinks=True)
        return self.place.work / "run"

    # --------------------------------------------------------------------------------------- one try

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        kind = draw.choice(["finished", "unfinished"])
        state = draw.getstate()
        mutation = self._mutated(kind, draw)
        readers = [each for each in _readers(mutation.file) if each in self._commands(kind)]
        commands = readers if every else [draw.choice(readers)]
        verdicts = []
        for command in commands:
            draw.setstate(state)
            self._mutated(kind, draw)
            if (command, mutation.file) == ("profile --against", "run.json"):
                (self.place.work / "run" / "profile.json").unlink(missing_ok=True)  # it would be read instead
            right = _conforms(self.place.work / "run", mutation)
            answer = ask(self.place, COMMANDS[command], seconds=self.seconds)
            verdicts.append(self._verdict(kind, command, mutation, answer, right))
        return f"{kind}: {mutation}", verdicts

    def _mutated(self, kind: str, draw: random.Random) -> Mutation:
        """A fresh copy with one mutation; draws again where the drawn one changes nothing."""
        while True:
            folder = self._fresh(kind)
            files = _files(folder)
            group = draw.choice(["records", "records", "records", "states", "rest", "whole"])
            if group == "whole":
                found = _whole(folder, self.place, draw)
            else:
                chosen = [each for each in files if _group(each) == group]
                found = _drawn(folder, draw.choice(chosen), self.place, draw)
            if found is not None:
                return found

    # --------------------------------------------------------------------------------------- the verdict

    def _outcome(self, command: str) -> dict[str, Any]:
        """What a command has come to: the part of it that damage must not change."""
        folder = self.place.work / "run"
        if command == "train":
            return {"weights": _tensors(folder / "model.safetensors"), "rows": _rows(folder / "log.jsonl")}
        if command in ("export", "weights"):
            return {"weights": _tensors(folder / "export" / "model.safetensors")}
        return {}

    def _verdict(self, kind: str, command: str, mutation: Mutation, answer: Answer, right: bool) -> Verdict:
        if (ended := ending(answer)) is not None:
            return ended
        if command != "report --json" and _control(answer.text):
            return Verdict("accepted", f"{command} printed control characters", answer)
        if answer.code != 0:
            return Verdict("refused", "", answer)
        if not right:
            return Verdict("accepted", f"{command} took a {Path(mutation.file).name} that is not as declared", answer)
        if mutation.kind == "resealed bomb" and command == "audit":
            return Verdict("accepted", f"{command} took {mutation.about} for a checkpoint", answer)
        if mutation.kind.startswith(("resealed", "unsealed")):  # made on purpose: a hash tells damage, not malice
            return Verdict("shown", "", answer)
        noticed, outcome = self._noticed(mutation, answer), self._outcome(command)
        usual = self._usual_of(kind, command) if outcome else {}
        if outcome != usual and not (noticed and command in ("export", "weights")):
            what = " and ".join(name for name in usual if outcome[name] != usual[name])
            why = f"{command} came to other {what}: {mutation.kind} {_generic(mutation.file)}"
            return Verdict("accepted", why, answer)
        if _must_be_noticed(mutation, command, kind) and not noticed:
            return Verdict("accepted", f"{command} took a damaged {_generic(mutation.file)} for whole", answer)
        return Verdict("refused" if noticed else "same", "", answer)

    def _noticed(self, mutation: Mutation, answer: Answer) -> bool:
        """Whether the damaged file, or the checkpoint that holds it, was named.

        A run without its newest checkpoint can look like one that was killed before it was written. Then it is enough
        to be told that steps of the log are missing.
        """
        events = self.place.work / "run" / "events.jsonl"
        try:
            told = answer.text + events.read_text(errors="replace")
        except OSError:
            told = answer.text
        parts = Path(mutation.file).parts
        name = parts[1] if parts[0] == "checkpoints" and len(parts) > 1 else parts[-1]
        is_shorter = mutation.kind == "removed" and parts[0] == "checkpoints" and "not in these weights" in answer.text
        return name in told or is_shorter


def _train_and_die(recipe: str, folder: Path) -> None:
    """Trains until a step after the second checkpoint is logged, and ends as by `kill -9`."""
    from surefoot.recipe.load import load_recipe
    from surefoot.ways.train import train

    def tell(run: Any, row: Any) -> None:
        if row.step == LAST:
            while not (folder / "checkpoints" / "step-000000004").exists():
                time.sleep(0.01)
            os._exit(9)

    train(load_recipe(recipe), path=str(folder), tell=tell)


def _add_records(folder: Path) -> None:
    """Events and findings, which a run that goes well does not have."""
    from surefoot.records.codec import to_json
    from surefoot.records.event import Event, append_event
    from surefoot.records.finding import Finding, Findings

    for step in (2, 4):
        append_event(folder / "events.jsonl", Event(step, "slowing", "a step took 2 s", "2026-11-16 02:03:04"))
    finding = Finding("one-batch", "warning", "seen", "where", "why", "remedy")
    (folder / "findings.json").write_text(to_json(Findings("small", ("one-batch",), (finding,))) + "\n")


# ------------------------------------------------------------------------------------------- which mutation


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _group(file: str) -> str:
    if file in RECORDS:
        return "records"
    return "states" if file.startswith("checkpoints/") else "rest"


def _readers(file: str) -> tuple[str, ...]:
    return READERS.get(file) or READERS[Path(file).parts[0]]


def _drawn(folder: Path, file: str, place: Place, draw: random.Random) -> Mutation | None:
    """One mutation of one file, of those that make sense for it."""
    kinds: dict[str, Callable[..., str | None]] = {**mutations.BYTES, **mutations.THINGS}
    if file.endswith((".json", ".jsonl")):
        plain = {kind: partial(mutations.change_json, kind) for kind in mutations.JSON}
        kinds = {**plain, **plain, "other encoding": mutations.other_encoding, **kinds}
        if draw.random() < 0.6:
            kinds = plain
    if file.endswith(".jsonl") and draw.random() < 0.3:
        kinds = {"rows": mutations.rows}
    kind = draw.choice(sorted(kinds))
    unsealed = file == "run.json" and kind in mutations.JSON and draw.random() < 0.5
    if unsealed:  # what stands behind the digest must hold too
        mutations.edit_json(folder / file, digest="")
    about = kinds[kind](folder / file, place, draw)
    return None if about is None else Mutation(f"unsealed {kind}" if unsealed else kind, file, about)


def _whole(folder: Path, place: Place, draw: random.Random) -> Mutation | None:
    """Something that is wrong with more than one file."""
    return draw.choice(WHOLE)(folder, place, draw)


def named_target(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """run.json, and profile.json, name a function that is not a recipe's."""
    evil = place.outside / "evil.py"
    target, knobs = draw.choice([
        ("os:system", {"command": f"touch {place.canary}"}),
        ("subprocess:getoutput", {"cmd": f"touch {place.canary}"}),
        ("pathlib:Path.touch", {"self": str(place.canary)}),
        (str(folder / "recipe.py") + ":small", {}),
        ("recipe.py:small", {}),
        (str(folder / "evil.py"), {}),
        ("run.evil:small", {}),
        (str(evil), {}),
        ("antigravity:fly", {}),
    ])  # fmt: skip
    for name in ("evil.py", "recipe.py"):
        (folder / name).write_text(evil_source(place))
    held = [name for name in ("run.json", "profile.json") if (folder / name).exists()]
    for name in held:
        mutations.edit_json(folder / name, target=target, knobs=knobs, **({"digest": ""} if name == "run.json" else {}))
    return Mutation("target", draw.choice(held), target)


def evil_recipe(folder: Path, place: Place, draw: random.Random) -> Mutation:
    (folder / "recipe.py").write_text(evil_source(place) + RECIPE)
    return Mutation("code", "recipe.py")


def no_checkpoints(folder: Path, place: Place, draw: random.Random) -> Mutation:
    how = draw.choice(["all", "newest", "oldest", "folder", "file"])
    states = sorted((folder / "checkpoints").glob("step-*"))
    if how in ("folder", "file"):
        shutil.rmtree(folder / "checkpoints")
        if how == "file":
            (folder / "checkpoints").write_text("no folder")
        return Mutation("removed", "checkpoints", how)
    if how in ("newest", "oldest"):
        gone = states[-1 if how == "newest" else 0]
        shutil.rmtree(gone)
        return Mutation("removed", f"checkpoints/{gone.name}", how)
    for each in states:
        shutil.rmtree(each)
    return Mutation("removed", "checkpoints", how)


def strange_checkpoint(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """A checkpoint that nobody saved."""
    states = folder / "checkpoints"
    how = draw.choice(["empty", "renamed", "huge", "link"])
    if how == "empty":
        (states / "step-000000099").mkdir()
    elif how == "renamed":
        shutil.copytree(states / "step-000000004", states / "step-000000099")
    elif how == "huge":
        shutil.copytree(states / "step-000000004", states / f"step-{'9' * 200}")
    else:
        (states / "step-000000099").symlink_to(place.outside)
    return Mutation("strange", "checkpoints", how)


def resealed_metadata(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """A pickle with a payload, under hashes that are right."""
    state = draw.choice(sorted((folder / "checkpoints").glob("step-*")))
    file = draw.choice([".metadata", "__0_0.distcp", "state.json"])
    (state / file).write_bytes(pickle.dumps({"state_dict_metadata": Payload(place), "a": Payload(place)}))
    _reseal(state)
    return Mutation("resealed pickle", f"checkpoints/{state.name}/{file}")


def resealed_bomb(folder: Path, place: Place, draw: random.Random) -> Mutation:
    """A pickle of a few bytes that takes all memory, years, or the stack to load, under hashes that are right."""
    state = draw.choice(sorted((folder / "checkpoints").glob("step-*")))
    about, content = draw.choice(sorted(BOMBS.items()))
    (state / ".metadata").write_bytes(content)
    _reseal(state)
    return Mutation("resealed bomb", f"checkpoints/{state.name}/.metadata", about)


BOMBS = {
    "a memo of 2 billion entries": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "a memo of 150 million entries": b"\x80\x02Nr\x80\xd1\xf0\x08.",
    "the hash of 2**60 tuples": b"\x80\x04})" + b"2\x86" * 60 + b"Ns.",
    "a key of a million nested tuples": b"\x80\x04})" + b"\x85" * 1_000_000 + b"Ns.",
    "bytes of 8 GiB": b"\x80\x04\x8e" + (1 << 33).to_bytes(8, "little") + b"x.",
    "a frame of 8 GiB": b"\x80\x04\x95" + (1 << 33).to_bytes(8, "little") + b"N.",
}


def resealed_state(folder: Path, place: Place, draw: random.Random) -> Mutation | None:
    """The outline of a state has changed, under hashes that are right."""
    state = draw.choice(sorted((folder / "checkpoints").glob("step-*")))
    about = mutations.change_json(draw.choice(sorted(mutations.JSON)), state / "state.json", place, draw)
    if about is None:
        return None
    _reseal(state)
    return Mutation("resealed state", f"checkpoints/{state.name}/state.json", about)


def resealed_manifest(folder: Path, place: Place, draw: random.Random) -> Mutation | None:
    """A manifest that names files outside, or says what no manifest says, under a hash that is right."""
    state = draw.choice(sorted((folder / "checkpoints").glob("step-*")))
    _, _, body = (state / "MANIFEST").read_bytes().partition(b"\n")
    if draw.random() < 0.5:
        plain = json.loads(body)
        name = draw.choice([str(place.outside / "secret.txt"), mutations.RELATIVE_OUTSIDE, "/dev/zero", "..", ""])
        plain["files"][name] = {"bytes": 26, "xxh3_128": "0" * 32}
        about, text = name, json.dumps(plain)
    else:
        draft = folder / "draft.json"
        draft.write_bytes(body)
        changed = mutations.change_json(draw.choice(sorted(mutations.JSON)), draft, place, draw)
        about, text = changed or "", draft.read_text(errors="surrogatepass")
        draft.unlink()
    _seal(state, text.encode(errors="surrogatepass"))
    return Mutation("resealed manifest", f"checkpoints/{state.name}/MANIFEST", about)


WHOLE = (
    named_target, evil_recipe, no_checkpoints, strange_checkpoint, resealed_metadata, resealed_bomb, resealed_state,
    resealed_manifest,
)  # fmt: skip


def _reseal(state: Path) -> None:
    """Makes a checkpoint's manifest right again after its files were changed."""
    from surefoot.checkpoint.files import fingerprint

    _, _, body = (state / "MANIFEST").read_bytes().partition(b"\n")
    plain = json.loads(body)
    plain["files"] = {name: vars(fingerprint(state / name)) for name in plain["files"]}
    _seal(state, json.dumps(plain).encode())


def _seal(state: Path, body: bytes) -> None:
    import xxhash

    (state / "MANIFEST").write_bytes(xxhash.xxh3_128(body).hexdigest().encode() + b"\n" + body)


# ------------------------------------------------------------------------------------------- what came of it


def _conforms(folder: Path, mutation: Mutation) -> bool:
    """Whether the records are what they are declared to be. Where the file is something else, reading it is enough."""
    file = folder / mutation.file
    if mutation.file not in RECORDS or mutation.kind in (
        "draft",
        "module",
        "gone",
        "loop",
    ):  # a loop is as good as gone
        return True
    if file.is_symlink() or not file.is_file() or file.stat().st_size > 1 << 30:
        return False
    return conforms(file)


def _must_be_noticed(mutation: Mutation, command: str, kind: str) -> bool:
    """Damage to files under a hash that the command reads."""
    parts = Path(mutation.file).parts
    if mutation.kind in ("draft", "module") or parts[-1] == "lock":
        return False
    if parts[0] == "checkpoints" and len(parts) == 3:
        newest = parts[1] == f"step-{STEPS if kind == 'finished' else 4:09}"
        return command == "audit" or (newest and (kind, command) != ("finished", "train"))
    return False


def _control(text: str) -> str:
    return "".join(
        sorted({letter for letter in text if (letter < " " and letter not in "\n\t") or "\x7f" <= letter <= "\x9f"})
    )


def _generic(file: str) -> str:
    return "checkpoint" if file.startswith("checkpoints") else Path(file).name


def _tensors(file: Path) -> str:
    """A digest of the tensors in a file, or what is there in place of one."""
    from safetensors.numpy import load

    try:
        found = load(file.read_bytes())
    except Exception as error:
        return f"no tensors: {type(error).__name__}"
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name} {found[name].dtype} {found[name].shape}".encode() + found[name].tobytes())
    return digest.hexdigest()


def _rows(file: Path) -> list[Any]:
    """The steps of a log in the order of the rows, without those that were taken again.

    A part of a row at the end is none: a kill leaves it, and readers leave it out.
    """
    try:
        *whole, last = file.read_bytes().split(b"\n")
        with suppress(ValueError, KeyError, TypeError):
            whole += [last] if json.loads(last)["step"] else []
        return list(dict.fromkeys(json.loads(line)["step"] for line in whole))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"no rows: {type(error).__name__}"]
