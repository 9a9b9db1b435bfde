"""Corpora: tokens on disk, damaged, and read by every command that reads tokens.

Three kinds: one that `surefoot data tokenize` made, in which every byte is under a hash; the same with forged
manifests, whose hashes are right; and tokens that others have written, which carry no hash.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from damaged import mutations
from damaged.asking import Answer, Place, ask
from damaged.conforming import fits
from damaged.mutations import Mutation
from damaged.runs import _control, _tensors
from damaged.trying import Verdict, ending

TINY = ["layers=1", "width=8", "heads=2", "context=16", "micro_batch_size=2", "global_batch_tokens=32", "max_steps=2"]
COMMANDS: dict[str, list[str]] = {
    "verify": ["data", "verify", "corpus", "--json"],
    "inspect": ["data", "inspect", "corpus", "--context", "16", "--json"],
    "count": ["data", "count", "corpus", "--json"],
    "count windows": ["data", "count", "corpus", "--context", "16", "--json"],
    "count packed": ["data", "count", "corpus", "--context", "16", "--packed", "--json"],
    "train": ["train", "gpt", "corpus=corpus", *TINY, "--run", "run", "--no-plan"],
    "train packed": ["train", "gpt", "corpus=corpus", "packed=true", *TINY, "--run", "run", "--no-plan"],
}
FOREIGN: dict[str, list[str]] = {
    "inspect": ["data", "inspect", "corpus", "--vocabulary", "257"],
    "count": ["data", "count", "corpus", "--context", "16"],
    "adopt": ["data", "verify", "corpus", "--adopt", "--vocabulary", "257"],
}


class Corpora:
    """The files of a corpus, damaged one at a time."""

    name = "corpora"

    def __init__(self, place: Place, seconds: float) -> None:
        self.place, self.seconds = place, seconds
        self.templates = place.root / "corpora"
        self.elsewhere = place.root / "elsewhere"
        self._build()
        self._usual: dict[str, dict[str, Any]] = {}

    def _build(self) -> None:
        texts, made = self.place.root / "texts", self.templates / "made"
        for source in ("letters", "numbers"):
            (texts / source).mkdir(parents=True)
            for number in range(24):
                line = f"{source} {number}: " + " ".join(str(number * each) for each in range(150))
                (texts / source / f"{number}.txt").write_text(line)
        words = ["data", "tokenize", str(texts / "letters"), str(texts / "numbers"), "--to", str(made)]
        answer = ask(self.place, [*words, "--held-out", "0.2"], seconds=300)
        if answer.code != 0:
            raise RuntimeError(f"{' '.join(answer.words)} fails:\n{answer.text[-3000:]}")
        shutil.copytree(made, self.elsewhere)
        self.made = sorted(path.name for path in made.iterdir() if path.is_file())
        for kind, write in FOREIGN_FILES.items():
            (self.templates / kind).mkdir()
            write(self.templates / kind)

    def _fresh(self, kind: str) -> Path:
        mutations.empty_folder(self.place.work)
        self.place.work.mkdir()
        shutil.copytree(self.templates / kind, self.place.work / "corpus")
        return self.place.work / "corpus"

    def _usual_of(self, command: str) -> dict[str, Any]:
        """What a command comes to on the undamaged corpus."""
        if command not in self._usual:
            self._fresh("made")
            answer = ask(self.place, COMMANDS[command], seconds=300)
            if answer.code != 0:
                raise RuntimeError(f"{' '.join(answer.words)} fails on an undamaged corpus:\n{answer.text[-3000:]}")
            self._usual[command] = self._outcome(answer, command)
        return self._usual[command]

    def _outcome(self, answer: Answer, command: str) -> dict[str, Any]:
        if command.startswith("train"):
            return {"weights": _tensors(self.place.work / "run" / "model.safetensors")}
        return {"output": answer.out}

    # --------------------------------------------------------------------------------------- one try

    def once(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        kind = draw.choice(["made", "made", "made", "forged", "foreign", "mapped"])
        if kind == "foreign":
            return self._foreign(draw, every=every)
        if kind == "mapped":
            return self._mapped(draw)
        commands = list(COMMANDS) if every else [draw.choice(list(COMMANDS))]
        state, verdicts = draw.getstate(), []
        for command in commands:
            draw.setstate(state)
            mutation = self._mutated(kind, draw)
            answer = ask(self.place, COMMANDS[command], seconds=self.seconds)
            verdicts.append(self._verdict(kind, command, mutation, answer))
        return f"{kind}: {mutation}", verdicts

    def _mutated(self, kind: str, draw: random.Random) -> Mutation:
        while True:
            folder = self._fresh("made")
            if kind == "forged":
                return forged(folder, self.place, self.elsewhere, draw)
            kinds: dict[str, Callable[..., str | None]] = {
                **mutations.BYTES,
                **mutations.THINGS,
                "linked": self._linked,
            }
            file = draw.choice(self.made)
            if file.endswith(".json") and draw.random() < 0.6:
                kinds = {each: partial(mutations.change_json, each) for each in mutations.JSON}
            name = draw.choice(sorted(kinds))
            about = kinds[name](folder / file, self.place, draw)
            if about is not None:
                return Mutation(name, file, about)

    def _linked(self, path: Path, place: Place, draw: random.Random) -> str:
        """A link to a file outside that holds the same bytes."""
        path.unlink()
        path.symlink_to(self.elsewhere / path.name)
        return str(path.readlink())

    def _verdict(self, kind: str, command: str, mutation: Mutation, answer: Answer) -> Verdict:
        if (ended := ending(answer)) is not None:
            return ended
        if answer.code != 0:
            return Verdict("refused", "", answer)
        if _control(answer.out):
            return Verdict("accepted", f"data {command} printed control characters", answer)
        if kind == "forged" and mutation.kind != "forged words":
            return Verdict("accepted", f"{command} took a manifest with {mutation.about.split(':')[0]}", answer)
        touched = mutation.kind not in ("draft", "module") and mutation.file != "tokenizer.json"
        strict = command == "verify" or (mutation.kind, mutation.file) == ("gone", "manifest.json")
        # the manifest is hashed as what it says, so a default that is no longer spelled out is no damage
        if (
            kind == "made"
            and touched
            and strict
            and not _says_the_same(self.place.work / "corpus", self.elsewhere, mutation)
        ):
            return Verdict("accepted", f"{command} took a {mutation.kind} {Path(mutation.file).suffix}", answer)
        outcome = self._outcome(answer, command)
        if kind == "made" and outcome != self._usual_of(command):
            return Verdict("accepted", f"{command} came to something else: {mutation.kind} {mutation.file}", answer)
        return Verdict("same" if kind == "made" else "shown", "", answer)

    def _foreign(self, draw: random.Random, *, every: bool) -> tuple[str, list[Verdict]]:
        """Tokens of others carry no hash: here it must only not crash, hang or execute anything."""
        kind, state, verdicts = draw.choice(sorted(FOREIGN_FILES)), draw.getstate(), []
        for command in FOREIGN if every else [draw.choice(sorted(FOREIGN))]:
            draw.setstate(state)
            folder = self._fresh(kind)
            name, change = draw.choice(sorted({**mutations.BYTES, **mutations.THINGS}.items()))
            file = draw.choice(sorted(path.name for path in folder.iterdir()))
            about = change(folder / file, self.place, draw)
            answer = ask(self.place, FOREIGN[command], seconds=self.seconds)
            verdicts.append(ending(answer) or Verdict("shown" if answer.code == 0 else "refused", "", answer))
        return f"{kind}: {Mutation(name, file, about or '')}", verdicts

    def _mapped(self, draw: random.Random) -> tuple[str, list[Verdict]]:
        """A file is cut while a process has it open."""
        folder, file = self._fresh("made"), draw.choice([each for each in self.made if each != "manifest.json"])
        left = draw.choice([0, 1, 4096, (folder / file).stat().st_size // 2])
        answer = ask(self.place, ["open", file], seconds=self.seconds, do=partial(_cut_while_open, folder, file, left))
        mutation = f"mapped: {file} cut to {left} bytes while it is open"
        return mutation, [ending(answer) or Verdict("refused" if answer.code else "same", "", answer)]


def _cut_while_open(folder: Path, file: str, left: int) -> None:
    """Reads a corpus through, before and after one of its files is cut. What was cut is refused, or was not read."""
    from surefoot.data.formats import open_corpus
    from surefoot.data.pages import check_all
    from surefoot.errors import DataError

    corpus = open_corpus(folder)
    opened = list(corpus.files())
    before = [corpus.tokens(number, 0, shard.tokens).tobytes() for number, shard in enumerate(corpus.manifest.shards)]
    os.truncate(folder / file, left)
    try:
        for number, shard in enumerate(corpus.manifest.shards):
            assert corpus.tokens(number, 0, shard.tokens).tobytes() == before[number]
        for each in opened:
            for _ in check_all(each):
                pass
    except DataError as error:
        print(error)
        raise SystemExit(2) from None


def _says_the_same(folder: Path, elsewhere: Path, mutation: Mutation) -> bool:
    """Whether a changed manifest, with its defaults filled in, is the one that was written."""
    from surefoot.records.codec import from_json
    from surefoot.records.manifest import Manifest

    if mutation.file != "manifest.json" or mutation.kind not in {*mutations.JSON, "cut"}:
        return False
    now, then = ((each / "manifest.json").read_text() for each in (folder, elsewhere))
    try:
        return fits(Manifest, json.loads(now)) and from_json(Manifest, now) == from_json(Manifest, then)
    except ValueError:  # cut elsewhere than before its last line feed
        return False


# ------------------------------------------------------------------------------------------- forged manifests


def forged(folder: Path, place: Place, elsewhere: Path, draw: random.Random) -> Mutation:
    """A manifest under a hash that is right, which says what no manifest may say."""
    from surefoot.data.shards import read_manifest, write_manifest

    manifest = read_manifest(folder)
    shards, at = list(manifest.shards), draw.randrange(len(manifest.shards))
    how = draw.choice(["absolute", "parent", "device", "no digest", "no ends digest", "words", "counts"])
    file = shards[at].file
    if how == "absolute":
        shards[at] = replace(shards[at], file=str(elsewhere / file))
    elif how == "parent":
        shards[at] = replace(shards[at], file=f"../../../../elsewhere/{file}")
    elif how == "device":
        shards[at] = replace(shards[at], file=draw.choice(["/dev/zero", "../corpus", ".", "", "/dev/stdin"]))
    elif how == "no digest":
        shards[at] = replace(shards[at], digest="")
    elif how == "no ends digest":
        shards[at] = replace(shards[at], ends_digest="")
    elif how == "words":
        shards[at] = replace(shards[at], source=draw.choice(mutations.hostile_strings(place)))
    else:
        field = draw.choice(["tokens", "documents", "offset", "text_bytes"])
        shards[at] = replace(shards[at], **{field: draw.choice([-1, 2**63, 2**80, "7", None, 0.5])})
        how = f"counts: {field}"
    write_manifest(folder, replace(manifest, shards=tuple(shards)))
    return Mutation(
        "forged words" if how == "words" or how == "counts: text_bytes" else "forged", "manifest.json", f"{how}: {file}"
    )


# ------------------------------------------------------------------------------------------- tokens of others


def _npy(folder: Path) -> None:
    np.save(folder / "tokens.npy", np.arange(4000, dtype=np.uint16) % 257)


def _llm_c(folder: Path) -> None:
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 4000
    (folder / "tokens.bin").write_bytes(header.tobytes() + (np.arange(4000, dtype="<u2") % 257).tobytes())


def _megatron(folder: Path) -> None:
    """Laid out as Megatron-LM's IndexedDataset writes it."""
    lengths = np.full(10, 400, "<i4")
    pointers = (np.arange(10, dtype="<i8") * 800).tobytes()
    counts = (10).to_bytes(8, "little") + (11).to_bytes(8, "little")
    index = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + b"\x08" + counts
    (folder / "tokens.idx").write_bytes(index + lengths.tobytes() + pointers + np.arange(11, dtype="<i8").tobytes())
    (folder / "tokens.bin").write_bytes((np.arange(4000, dtype="<u2") % 257).tobytes())


def _datatrove(folder: Path) -> None:
    (folder / "tokens.ds").write_bytes((np.arange(4000, dtype="<u2") % 257).tobytes())
    (folder / "tokens.ds.index").write_bytes((np.arange(1, 11, dtype="<u8") * 400).tobytes())
    (folder / "tokens.ds.metadata").write_text("gpt2|2\n4000\n")


FOREIGN_FILES = {"npy": _npy, "llm.c": _llm_c, "megatron": _megatron, "datatrove": _datatrove}
