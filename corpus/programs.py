"""The programs: base programs as they are, and with one edit each, which plants a bug or something that looks like one.

Edits are small diffs in `.edits` files, without line numbers and without regard to how deep the lines stand:

    ## AUTO-05 zero_grad between backward and step
     loss.backward()
    +optimizer.zero_grad()

A heading begins with a bug of the catalogue, or with `clean`; `@@` parts the places that an edit changes. What stands
in `name.edits` is for that base alone. What stands in `any_loop.edits` is for each script in which it finds what it
names: `{backward}` is the line that calls backward, and so on; a heading's `[if A]`, `[not B]` ask more of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpus.split import digest, folder, held_out

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """A file that a person could have written; `bug` is what is wrong with it, None for nothing."""

    base: str
    bug: str | None
    title: str
    source: str

    @property
    def name(self) -> str:
        return "/".join(part for part in (self.base, self.bug or "clean", self.title.replace(" ", "-")) if part)

    @property
    def held_out(self) -> bool:
        return held_out(self.base)

    @property
    def recipe(self) -> str | None:
        """The function that returns a recipe, in a file that is no script."""
        found = re.search(r"^def (\w+)\([^)]*\) -> Recipe:", self.source, re.MULTILINE)
        return found[1] if found else None

    @property
    def needs(self) -> str | None:
        """The package or launcher that is needed to run it, beside torch."""
        marks = {
            "transformers": "transformers import",
            "accelerate": "accelerate import",
            "lightning": "import lightning",
            "torchrun": "init_process_group",
        }
        return next((name for name, mark in marks.items() if mark in self.source), None)


@dataclass(frozen=True)
class Edit:
    """One heading of an `.edits` file: pairs of lines before and lines after."""

    bug: str | None
    title: str
    conditions: tuple[tuple[bool, str], ...]
    places: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    def suits(self, source: str) -> bool:
        return all(bool(re.search(pattern, source)) == wanted for wanted, pattern in self.conditions)


class NoSuchPlace(Exception):
    """The lines that an edit changes are not there, or more than once."""


@cache
def programs() -> tuple[Program, ...]:
    """All of them, in a fixed order."""
    found = [program for base in bases() for program in programs_of(base)]
    names = [program.name for program in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two programs are called {', '.join(sorted(twice))}")
    return tuple(found)


def bases() -> list[str]:
    return sorted(path.stem for side in ("tuning", "held_out") for path in (HERE / side).glob("*.py"))


def programs_of(base: str) -> Iterator[Program]:
    file = HERE / folder(base) / f"{base}.py"
    source = file.read_text(encoding="utf-8")
    yield Program(base, None, "", source)
    own = file.with_suffix(".edits")
    for edit in read_edits(own) if own.exists() else ():
        yield Program(base, edit.bug, edit.title, apply(edit, source, {}))
    if own.exists() and "-> Recipe:" not in source:
        yield from _general(base, source, own.read_text(encoding="utf-8"))


def _general(base: str, source: str, own: str) -> Iterator[Program]:
    """General edits that find their places; `## skip` with a bug, a title or `all` in a base's own file leaves out."""
    if "## skip all\n" in own:
        return
    words = vocabulary(source)
    for edit in read_edits(HERE / "any_loop.edits"):
        if not edit.suits(source) or any(f"## skip {each}\n" in own for each in (edit.bug, edit.title)):
            continue
        if edit.bug is None and digest(base + edit.title) % 2:
            continue  # half of the clean ones are enough
        try:
            yield Program(base, edit.bug, edit.title, apply(edit, source, words))
        except NoSuchPlace:
            continue


# ------------------------------------------------------------------------------------------- edits


@cache
def read_edits(file: Path) -> tuple[Edit, ...]:
    sections = re.split(r"^## ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return tuple(_edit(section) for section in sections if not section.startswith("skip "))


def _edit(section: str) -> Edit:
    heading, _, body = section.partition("\n")
    conditions = re.findall(r"\[(if|not) ([^\]]+)\]", heading)
    kind, _, title = re.sub(r"\[[^\]]+\]", "", heading).strip().partition(" ")
    places = tuple(_place(text) for text in re.split(r"^@@\n", body, flags=re.MULTILINE))
    return Edit(None if kind == "clean" else kind, title, tuple((w == "if", p) for w, p in conditions), places)


def _place(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lines = [line for line in text.splitlines() if line]
    return (
        tuple(line[1:] for line in lines if line[0] in " -"),
        tuple(line[1:] for line in lines if line[0] in " +"),
    )


def apply(edit: Edit, source: str, words: dict[str, str]) -> str:
    """The source with one edit made."""
    for before, after in edit.places:
        source = _replace(source, [_fill(line, words) for line in before], [_fill(line, words) for line in after])
    return source


def _fill(line: str, words: dict[str, str]) -> str:
    def word(match: re.Match[str]) -> str:
        if match[1] not in words:
            raise NoSuchPlace(match[1])
        return words[match[1]]

    return re.sub(r"\{([a-z_]+)\}", word, line) if words else line


def _replace(source: str, before: list[str], after: list[str]) -> str:
    lines = source.splitlines()
    wanted = [line.strip() for line in before]
    stripped = [line.strip() for line in lines]
    places = [i for i in range(len(lines)) if stripped[i : i + len(wanted)] == wanted]
    if len(places) != 1:
        raise NoSuchPlace(f"{len(places)} places for {before}")
    at = places[0]
    deeper = _depth(lines[at]) - _depth(before[0])
    new = [" " * max(0, deeper + _depth(line)) + line.strip() for line in after]
    return "\n".join([*lines[:at], *new, *lines[at + len(wanted) :]]) + "\n"


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


# ------------------------------------------------------------------------------------------- the words of general edits

_LINES = {
    "seed": r"(torch\.manual_seed\(\d+\))",
    "zero_grad": r"(\w+\.zero_grad\([\w=]*\))",
    "backward": r"(\w+\.backward\(\))",
    "step": r"(opt\w*\.step\(\))",
    "clip": r"((?:\w+ = )?(?:torch\.)?nn\.utils\.clip_grad_norm_\(.*\))",
    "train_mode": r"(\w+\.train\(\))",
    "eval_mode": r"(\w+\.eval\(\))",
    "make": r"(opt\w* = (?:torch\.)?optim\.\w+\(\w+\.parameters\(\), .*\))",
}


def vocabulary(source: str) -> dict[str, str]:
    """What the placeholders of general edits stand for in a source; a line that is there twice is none."""
    words = {}
    for word, pattern in _LINES.items():
        found = re.findall(rf"^ *{pattern}$", source, re.MULTILINE)
        if len(found) == 1:
            words[word] = found[0]
    if "make" in words and "step" in words:
        head, model, rest = re.fullmatch(r"(.*?\()(\w+)(\.parameters\(\), .*)", words["make"]).groups()
        words |= {"head": head, "model": model, "rest": rest.removeprefix(".parameters()")}
        words["rest_without_lr"] = re.sub(r"\blr=[^,)]+", "lr=0.0", words["rest"])
        words["optimizer"] = head.partition(" ")[0]
    if "backward" in words:
        words["loss"] = words["backward"].partition(".")[0]
    if _one_scope(source, words):
        words["here"] = words["make"]
    return words


def _one_scope(source: str, words: dict[str, str]) -> bool:
    """Are the optimizer and the loop in one function, so that what is made beside one is known beside the other?"""
    if "make" not in words or "step" not in words:
        return False
    lines = source.splitlines()
    scopes = []
    for word in ("make", "step"):
        at = next(i for i, line in enumerate(lines) if line.strip() == words[word])
        opened = [i for i in range(at) if re.match(r" *def ", lines[i]) and _depth(lines[i]) < _depth(lines[at])]
        closed = [i for i in range(at) if lines[i] and not lines[i].startswith((" ", ")"))]
        scopes.append(opened[-1] if opened and opened[-1] >= (closed[-1] if closed else 0) else None)
    return scopes[0] == scopes[1]
